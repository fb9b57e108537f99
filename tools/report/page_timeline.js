/* The timeline of one token: what was computed and what was waited for, layer after layer, and the
 * reads that went on meanwhile. Times are microseconds since the token began. */

const SEGMENTS = [
  { key: "dense", name: "computing, dense", style: STYLES.dense },
  { key: "wait", name: "waiting for the drive", style: STYLES.wait },
  { key: "expert", name: "computing experts", style: STYLES.expert },
  { key: "other", name: "head and rest", style: STYLES.other },
];

/* Where each piece begins: a layer's dense part ends when its experts have been chosen; waiting and
 * experts, which alternate in truth, are drawn one after the other. */
function segmentsOf(token, layers) {
  const made = [];
  let end = 0;
  for (const l of layers) {
    const begin = Math.max(end, l.begin_us - l.dense_us);
    const parts = [
      ["dense", begin, l.dense_us],
      ["wait", l.begin_us, l.wait_us],
      ["expert", l.begin_us + l.wait_us, l.expert_us],
    ];
    for (const [key, from, took] of parts) made.push({ key, from, took, layer: l.layer });
    end = l.begin_us + l.wait_us + l.expert_us;
  }
  const total = token.total_ms * 1000;
  if (total > end) made.push({ key: "other", from: end, took: total - end, layer: null });
  return made;
}

/* Lanes in which reads do not overlap: each goes into the first that is free. */
function lanesOf(reads, most) {
  const free = [];
  return reads.map((read) => {
    let lane = free.findIndex((until) => until <= read.begin_us);
    if (lane < 0) lane = free.length < most ? free.length : free.indexOf(Math.min(...free));
    free[lane] = read.begin_us + read.took_us;
    return { read, lane };
  });
}

const AHEAD = (why) => why >= 2;
const WHY = [
  "a token waits for it",
  "a prompt waits for it",
  "read ahead on a guess",
  "read ahead for a prompt",
  "hot list",
  "loading",
];

function drawTimeline(plot, state, view) {
  return responsive(plot, (width) => {
    const { token, layers, reads } = view.current;
    const placed = lanesOf(reads, 12),
      lanes = placed.reduce((a, p) => Math.max(a, p.lane + 1), 0);
    const lane = 9,
      y0 = 26,
      bar = 46,
      readsY = y0 + bar + 30,
      height = readsY + Math.max(1, lanes) * lane + 44;
    const label =
      `Token ${token.token}: ${F.ms(token.total_ms)}, of which ` +
      `${F.ms(token.wait_ms)} waiting; ${times(reads.length, "read")}`;
    const drawing = drawingOf(width, height, label),
      f = { x0: 2, x1: width - 14, y1: height - 40 };
    const total = Math.max(1, token.total_ms * 1000),
      x = (us) => f.x0 + ((f.x1 - f.x0) * Math.max(0, Math.min(total, us))) / total;
    drawing.append(svg("text", { x: 0, y: 12, class: "axis-title" }, "Computing and waiting"));
    drawing.append(
      svg(
        "text",
        { x: 0, y: readsY - 8, class: "axis-title" },
        reads.length
          ? "Reads under way"
          : view.hasReads
            ? "No reads"
            : "Single reads were not recorded",
      ),
    );
    const segments = segmentsOf(token, layers).filter((s) => s.took > 0);
    for (const s of segments)
      drawing.append(
        ...block(x(s.from), y0, Math.max(0.4, x(s.from + s.took) - x(s.from)), bar, STYLES[s.key]),
      );
    for (const { read, lane: k } of placed)
      drawing.append(
        ...block(
          x(read.begin_us),
          readsY + k * lane,
          Math.max(1, x(read.begin_us + read.took_us) - x(read.begin_us)),
          lane - 2,
          AHEAD(read.why) ? STYLES.ahead : STYLES.read,
        ),
      );
    drawing.append(svg("path", { d: `M${f.x0},${f.y1 + 0.5}H${f.x1}`, class: "axis-line" }));
    for (const v of ticks(0, total / 1000, Math.max(2, Math.floor(width / 110))))
      xLabel(drawing, x(v * 1000), f, plain(v));
    drawing.append(
      svg(
        "text",
        { x: (f.x0 + f.x1) / 2, y: height - 4, "text-anchor": "middle", class: "axis-title" },
        "Milliseconds since the token began",
      ),
    );
    plot.replaceChildren(drawing);
    state.current = timelineCursor({ drawing, segments, placed, x, y0, bottom: f.y1 });
  });
}

function timelineCursor(t) {
  const { segments, x } = t;
  const at = (i) => (x(segments[i].from) + x(segments[i].from + segments[i].took)) / 2;
  return {
    drawing: t.drawing,
    n: segments.length,
    at,
    top: t.y0,
    bottom: t.bottom,
    nearest: (px) => {
      const inside = segments.findIndex((s) => px >= x(s.from) && px <= x(s.from + s.took));
      return inside >= 0 ? inside : nearestIndex(segments.length, at, px);
    },
    read: (i) => {
      const s = segments[i],
        middle = s.from + s.took / 2;
      const flying = t.placed.filter(
        ({ read }) => read.begin_us <= middle && middle <= read.begin_us + read.took_us,
      ).length;
      return {
        head:
          (s.layer === null ? "" : `Layer ${s.layer}, `) +
          SEGMENTS.find((k) => k.key === s.key).name,
        lines: [
          { name: "took", value: F.ms(s.took / 1000) },
          { name: "begins at", value: F.ms(s.from / 1000) },
          { name: "reads under way", value: F.count(flying) },
        ],
      };
    },
  };
}

function groups(rows) {
  const found = new Map();
  for (const row of rows) {
    if (!found.has(row.token)) found.set(row.token, []);
    found.get(row.token).push(row);
  }
  return found;
}

/* Controls, timeline and layers of one token out of those that the data has. trace.recorded tells
 * whether single reads were recorded. */
function tokenFigure(trace) {
  const tokens = rowsOf(trace.timeline_tokens).sort((a, b) => a.token - b.token);
  const layers = groups(rowsOf(trace.timeline)),
    reads = groups(rowsOf(trace.timeline_reads));
  const order = tokens.map((_, i) => i).sort((a, b) => tokens[b].total_ms - tokens[a].total_ms);
  const view = { current: null, hasReads: trace.recorded.has_reads };
  const slider = el("input", {
    type: "range",
    id: "token-slider",
    min: 0,
    max: tokens.length - 1,
    step: 1,
    value: 0,
  });
  const output = el("output", { for: "token-slider" });
  const plot = plotBox("Timeline of a token"),
    state = {},
    byLayer = el("div", {});
  const box = numbersOfToken(view);
  let redraw = null;
  const choose = (i) => {
    const token = tokens[i];
    view.current = {
      token,
      layers: layers.get(token.token) || [],
      reads: reads.get(token.token) || [],
    };
    slider.value = i;
    const words =
      `Token ${F.count(token.token)}: ${F.ms(token.total_ms)}, of which ` +
      `${F.ms(token.wait_ms)} waiting; ` +
      `${F.bytes(token.read_bytes)} read. ${rankWords(order.indexOf(i), tokens.length)}`;
    slider.setAttribute("aria-valuetext", words);
    output.textContent = words;
    if (redraw) redraw();
    else redraw = drawTimeline(plot, state, view);
    byLayer.replaceChildren(layerColumns(view.current));
    box.again();
  };
  slider.addEventListener("input", () => choose(Number(slider.value)));
  const button = (words, pick) =>
    el("button", { type: "button", onclick: () => choose(pick()) }, words);
  const controls = el(
    "div",
    { class: "controls" },
    button("Slowest", () => order[0]),
    button("Median", () => order[order.length >> 1]),
    button("Fastest", () => order[order.length - 1]),
    el("label", { for: "token-slider" }, "Token"),
    slider,
    output,
  );
  attachCursor(plot, state);
  choose(order[order.length >> 1]);
  return figure(
    "One token, from left to right",
    "Each layer computes its dense part, chooses experts, waits for those that are " +
      "missing, and computes them. " +
      "Waiting and experts alternate in truth; here they stand one after the other.",
    [
      controls,
      legend([
        ...SEGMENTS,
        { name: "read that a token waits for", style: STYLES.read },
        { name: "read ahead", style: STYLES.ahead },
      ]),
      plot,
      byLayer,
      box,
    ],
  );
}

const rankWords = (rank, n) =>
  rank === 0
    ? "The slowest of those kept."
    : rank === n - 1
      ? "The fastest of those kept."
      : `Number ${rank + 1} of ${n} kept, slowest first.`;

function layerColumns(current) {
  const rows = current.layers,
    part = (key) => rows.map((r) => r[key + "_us"] / 1000);
  const series = SEGMENTS.slice(0, 3).map((s) => ({
    name: s.name,
    style: s.style,
    values: part(s.key),
  }));
  const most = greatest(
    rows.map((r) => (r.dense_us + r.wait_us + r.expert_us) / 1000),
    1e-6,
  );
  return columnChart({
    label: `Time of each layer of token ${current.token.token}`,
    height: 190,
    names: rows.map((r) => String(r.layer)),
    x: { title: "Layer" },
    y: { min: 0, max: most, title: "Milliseconds in each layer", as: plain, read: F.ms },
    series,
    head: (i) => "Layer " + rows[i].layer,
  });
}

/* The numbers follow the token that is shown. */
function numbersOfToken(view) {
  const box = el("div", {});
  const make = () => {
    const { token, layers, reads } = view.current,
      name = `Token ${token.token}`;
    const us = (key) => (r) => r[key];
    return el(
      "div",
      {},
      table(
        [
          { name: "Layer", of: us("layer"), as: F.count, head: true },
          { name: "Experts chosen at, µs", of: us("begin_us"), as: F.count },
          { name: "Dense, µs", of: us("dense_us"), as: F.count },
          { name: "Waiting, µs", of: us("wait_us"), as: F.count },
          { name: "Experts, µs", of: us("expert_us"), as: F.count },
        ],
        layers,
        name + ": layers",
      ),
      reads.length
        ? table(
            [
              { name: "Read: layer", of: us("layer"), as: F.count, head: true },
              { name: "Expert", of: us("expert"), as: F.count },
              { name: "Begins, µs", of: us("begin_us"), as: F.count },
              { name: "Took, µs", of: us("took_us"), as: F.count },
              { name: "Bytes", of: us("bytes"), as: F.count },
              { name: "Why", of: (r) => WHY[r.why] },
            ],
            reads,
            name + ": reads",
          )
        : null,
    );
  };
  box.again = () => {
    const open = box.querySelector("details[open]") !== null;
    box.replaceChildren(numbers("Timeline of a token", make));
    box.querySelector("details").open = open;
  };
  return box;
}
