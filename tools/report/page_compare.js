/* Two traces side by side: headline numbers with their difference, curves in one chart, layers, and
 * how far the hot experts are the same. */

const UNITS = {
  share: F.percent,
  count: F.count,
  bytes: F.bytes,
  ms: F.ms,
  tokens_per_s: F.speed,
  bytes_per_s: F.rate,
};
const MEASURES = {
  decoded_tokens: "Decoded tokens",
  prompt_tokens: "Tokens of prompts",
  hit_rate: "Hit rate",
  flying_share: "Already being read when chosen",
  cold_share: "First uses",
  token_read_bytes: "Read a token",
  token_ms: "Time of a token",
  tokens_per_s: "Decoding speed",
  token_wait_ms: "Waiting a token",
  wait_share: "Part of the time that is waiting",
  token_dense_ms: "Computing dense parts, a token",
  token_expert_ms: "Computing experts, a token",
  drive_bytes_per_s: "Drive, while it reads",
  slots: "Slots",
  slot_share: "Slots, part of the experts",
  default_hit_rate: "Default policy at this size",
  lru_hit_rate: "LRU at this size",
  optimum_hit_rate: "Optimum at this size",
  ahead_useful_share: "Reads ahead that were used",
  distinct_experts: "Different experts used",
  again_next: "Chosen again by the next token",
  knee_share: "Where the curve bends, part of the experts",
};

const signed = (format, x) => (x > 0 ? "+" : "") + format(x);
function difference(unit, x) {
  return unit === "share" ? F.points(x) : signed(UNITS[unit] || F.decimal, x);
}

function comparison(a, b, compare) {
  const rows = rowsOf(compare.headline),
    names = ["A: " + a.source.file, "B: " + b.source.file];
  const made = [
    el(
      "p",
      {},
      "A is ",
      el("strong", {}, a.source.file),
      ", which the rest of this page is about; B is ",
      el("strong", {}, b.source.file),
      ".",
    ),
    scrolling(
      table(
        [
          { name: "Measure", of: (r) => MEASURES[r.measure] || r.measure, head: true },
          {
            name: "A",
            of: (r) => (known(r.a) ? (UNITS[r.unit] || F.decimal)(r.a) : null),
            as: (x) => x,
          },
          {
            name: "B",
            of: (r) => (known(r.b) ? (UNITS[r.unit] || F.decimal)(r.b) : null),
            as: (x) => x,
          },
          {
            name: "B less A",
            of: (r) => (known(r.difference) ? difference(r.unit, r.difference) : null),
            as: (x) => x,
            none: "",
          },
        ],
        rows,
        "A and B compared",
      ),
      "A and B compared",
      "whole",
    ),
  ];
  made.push(curvesOfBoth(a, b, names));
  if (compare.shape.same) {
    made.push(layersOfBoth(a, b, names));
    made.push(overlap(compare));
  } else
    made.push(
      absent(
        "The models have different shapes, so layers and experts are not compared one by one.",
      ),
    );
  return made;
}

function curvesOfBoth(a, b, names) {
  const other = { ...STYLES.default, color: "var(--s-lru)", dash: "7 4", marker: "square" };
  const series = [
    ["default", a, names[0] + ", default", STYLES.default],
    ["default", b, names[1] + ", default", other],
    ["optimum", a, names[0] + ", optimum", { ...STYLES.default, width: 1.3, marker: "cross" }],
    [
      "optimum",
      b,
      names[1] + ", optimum",
      { ...other, width: 1.3, dash: "2 3", marker: "diamond" },
    ],
  ].map(([key, trace, name, style]) => ({
    name,
    style,
    join: true,
    points: rowsOf(trace.curves).map((r) => [r.share, missing(r[key + "_hit_rate"])]),
  }));
  const rows = [...new Set(series.flatMap((s) => s.points.map((p) => p[0])))].sort((x, y) => x - y);
  const maps = series.map((s) => new Map(s.points));
  const sizes = [
    [a, "A"],
    [b, "B"],
  ]
    .filter(([t]) => known(t.verdict.share))
    .map(([t, label]) => ({ x: t.verdict.share, now: true, label }));
  const same = sizes.length === 2 && Math.abs(sizes[0].x - sizes[1].x) < 0.005;
  const marks = same ? [{ ...sizes[0], label: "A and B" }] : sizes;
  return figure("Misses of both by cache size", "Vertical lines: the sizes of the two.", [
    legend(series),
    lineChart({
      label: "Miss ratio of both traces by cache size",
      height: 340,
      x: { min: 0, max: 1, title: "Cache size: part of all experts", as: share.as },
      marks,
      series,
      y: { ...share, title: "Part of the uses that misses", read: F.percent },
      head: (v) => F.percent(v) + " of the experts",
    }),
    numbers("Misses of both by cache size", () =>
      table(
        [
          { name: "Of the experts", of: (x) => x, as: F.percent, head: true },
          ...series.map((s, i) => ({
            name: s.name,
            of: (x) => maps[i].get(x),
            as: F.percent,
            none: "",
          })),
        ],
        rows,
        "Miss ratio of both",
      ),
    ),
  ]);
}

function layersOfBoth(a, b, names) {
  const rows = rowsOf(a.layers).filter((r) => r.uses > 0),
    others = new Map(rowsOf(b.layers).map((r) => [r.layer, r]));
  const series = [{ name: names[0], style: STYLES.expert, values: rows.map((r) => r.hit_rate) }];
  const over = {
    name: names[1],
    style: { ...STYLES.lru, dash: "", marker: "" },
    values: rows.map((r) => (others.get(r.layer) || {}).hit_rate),
  };
  return figure("Hit rate of both by layer", "Columns: A. Strokes: B.", [
    legend([...series, over]),
    columnChart({
      label: "Hit rate of both traces by layer",
      names: rows.map((r) => String(r.layer)),
      x: { title: "Layer" },
      series,
      over,
      head: (i) => "Layer " + rows[i].layer,
      y: { ...share, title: "Part of the chosen experts that was in memory", read: F.percent },
    }),
    numbers("Hit rate of both by layer", () =>
      table(
        [
          column("Layer", "layer", F.count, true),
          column("A", "hit_rate", F.percent),
          { name: "B", of: (r) => (others.get(r.layer) || {}).hit_rate, as: F.percent },
        ],
        rows,
        "Hit rate of both",
      ),
    ),
  ]);
}

function overlap(compare) {
  const rows = rowsOf(compare.overlap),
    layers = rowsOf(compare.similarity);
  const first = rows[rows.length - 1];
  const series = [
    { name: "similarity", style: STYLES.expert, values: layers.map((r) => r.similarity) },
  ];
  return figure(
    "Are the same experts hot?",
    (first
      ? `Of the ${F.count(first.top)} most used experts of each, ${F.count(first.shared)} ` +
        `are the same (${F.percent(first.share)}). `
      : "") +
      "Similarity of a layer: the cosine of the angle between the counts of its experts, 1 " +
      "where both use them alike.",
    [
      columnChart({
        label: "Similarity of the use of experts, by layer",
        height: 200,
        names: layers.map((r) => String(r.layer)),
        x: { title: "Layer" },
        head: (i) => "Layer " + layers[i].layer,
        series,
        y: { min: 0, max: 1, title: "Similarity", as: (v) => fixed(v, 2) },
      }),
      scrolling(
        table(
          [
            column("Most used", "top", F.count, true),
            column("In both", "shared", F.count),
            column("Share", "share", F.percent),
          ],
          rows,
          "Hot experts in both",
        ),
        "Hot experts in both",
      ),
      numbers("Similarity by layer", () =>
        table(
          [
            column("Layer", "layer", F.count, true),
            { name: "Similarity", of: (r) => r.similarity, as: (v) => fixed(v, 3) },
          ],
          layers,
          "Similarity by layer",
        ),
      ),
    ],
  );
}
