/* The sections of the report, each made from the tables of the data. */

const CURVES = [
  { key: "default", name: "default policy", style: STYLES.default },
  { key: "lru", name: "LRU", style: STYLES.lru },
  { key: "lfu", name: "LFU", style: STYLES.lfu },
  { key: "decay", name: "decayed LFU", style: STYLES.decay },
  { key: "optimum", name: "optimum", style: STYLES.optimum },
];
const share = { min: 0, max: 1, as: axis.percent };
const column = (name, key, as, head) => ({ name, of: (r) => r[key], as, head });
const source = (trace) =>
  trace.hits.kind === "recorded"
    ? "As recorded while the model ran."
    : trace.hits.kind === "replayed"
      ? `Nobody recorded what was in memory: replayed with the ${trace.hits.policy} policy ` +
        `and ${slotsText(trace.hits.slots, trace.hits.share)}.`
      : "Neither recorded nor replayed.";

/* Mean hit rate of the n points around each. */
function movingMean(rows, n) {
  return rows.map((_, i) => {
    const near = rows.slice(Math.max(0, i - n / 2), i + n / 2);
    return sum(near, "uses") ? sum(near, "hits") / sum(near, "uses") : null;
  });
}

/* ---- hit rate over time --------------------------------------------------------------------- */

function overTime(trace) {
  const rows = rowsOf(trace.time),
    prompts = rowsOf(trace.prompts);
  if (!rows.length) return [absent("No token was decoded, so there is no course of time to show.")];
  const last = rows[rows.length - 1],
    end = last.first_token + last.tokens,
    middle = (r) => r.first_token + r.tokens / 2;
  const x = { min: 0, max: end, title: "Decoded token", as: F.count };
  const marks = prompts
    .filter((p) => p.before_token < end)
    .map((p, i) => ({
      x: p.before_token,
      label:
        i === 0
          ? p.prompt_tokens
            ? `prompt of ${times(p.prompt_tokens, "token")}`
            : "begins without a prompt"
          : "",
    }));
  const head = (v) => {
    const r = rows.find((row) => middle(row) === v);
    return r.tokens > 1
      ? `Tokens ${F.count(r.first_token)} to ${F.count(r.first_token + r.tokens - 1)}`
      : `Token ${F.count(r.first_token)}`;
  };
  const made = [];
  const bins =
    rows[0].tokens > 1 ? ` Each point stands for ${times(rows[0].tokens, "token")}.` : "";
  const dotted =
    prompts.length > 1
      ? ` Dotted lines: there each of ${F.count(prompts.length)} prompts or conversations begins.`
      : "";
  const rates = rows.map((r) => [middle(r), r.hit_rate]),
    smooth = movingMean(rows, 16).map((y, i) => [middle(rows[i]), y]);
  const series = [
    {
      name: rows[0].tokens > 1 ? "hit rate" : "each token",
      style: { ...STYLES.other, dash: "", marker: "", width: 1 },
      points: rates,
    },
    { name: "mean of 16 points", style: { ...STYLES.default, marker: "" }, points: smooth },
  ];
  made.push(
    figure("Hit rate of decoded tokens", source(trace) + bins + dotted, [
      legend(series),
      lineChart({
        label:
          `Hit rate over ${times(end, "decoded token")}: ` +
          `${F.percent(trace.totals.hit_rate)} in all`,
        x,
        marks,
        head,
        y: { ...share, title: "Part of the chosen experts that was in memory", read: F.percent },
        series,
      }),
      numbers("Hit rate of decoded tokens", () =>
        table(
          [
            column("First token", "first_token", F.count, true),
            column("Tokens", "tokens", F.count),
            column("Uses", "uses", F.count),
            column("Hits", "hits", F.count),
            column("Hit rate", "hit_rate", F.percent),
            column("Read", "read_bytes", F.bytes),
            column("Waiting", "wait_ms", F.ms),
            column("Time", "total_ms", F.ms),
          ],
          rows,
          "Hit rate over time",
        ),
      ),
    ]),
  );
  if (rows.some((r) => known(r.total_ms)))
    made.push(timeOverTime(rows, { x, marks, head, middle }));
  return made;
}

function timeOverTime(rows, o) {
  const each = (key) => rows.map((r) => [o.middle(r), known(r[key]) ? r[key] / r.tokens : null]);
  const series = [
    {
      name: "all of a token",
      style: { ...STYLES.expert, dash: "", marker: "", width: 1.8 },
      points: each("total_ms"),
    },
    {
      name: "waiting for the drive",
      style: { ...STYLES.wait, dash: "5 3", marker: "", width: 1.8 },
      points: each("wait_ms"),
    },
  ];
  const most = greatest(
    series.flatMap((s) => s.points.map((p) => p[1])),
    0.001,
  );
  return figure("Time of a token", "Decoding only. The distance between the lines is computing.", [
    legend(series),
    lineChart({
      label: "Milliseconds a token over time, and the part that was waiting",
      x: o.x,
      marks: o.marks,
      head: o.head,
      series,
      y: { min: 0, max: most * 1.05, title: "Milliseconds a token", as: plain, read: F.ms },
    }),
    numbers("Time of a token", () =>
      table(
        [
          column("First token", "first_token", F.count, true),
          column("Tokens", "tokens", F.count),
          {
            name: "All of a token",
            of: (r) => (known(r.total_ms) ? r.total_ms / r.tokens : null),
            as: F.ms,
          },
          {
            name: "Waiting",
            of: (r) => (known(r.wait_ms) ? r.wait_ms / r.tokens : null),
            as: F.ms,
          },
        ],
        rows,
        "Time of a token",
      ),
    ),
  ]);
}

/* ---- layers --------------------------------------------------------------------------------- */

function byLayer(trace) {
  const rows = rowsOf(trace.layers).filter((r) => r.uses > 0),
    names = rows.map((r) => String(r.layer)),
    tokens = trace.totals.decoded_tokens || 1;
  if (!rows.length) return [absent("No layer with experts was used by a decoded token.")];
  const head = (i) => "Layer " + rows[i].layer,
    x = { title: "Layer" };
  const list = () =>
    table(
      [
        column("Layer", "layer", F.count, true),
        column("Experts", "experts", F.count),
        column("Used", "distinct", F.count),
        column("Uses", "uses", F.count),
        column("Hits", "hits", F.count),
        column("Hit rate", "hit_rate", F.percent),
        column("First uses", "cold", F.count),
        column("Read", "read_bytes", F.bytes),
        column("Dense", "dense_ms", F.ms),
        column("Experts", "expert_ms", F.ms),
        column("Waiting", "wait_ms", F.ms),
      ],
      rows,
      "Layers",
    );
  const rates = rows.map((r) => r.hit_rate),
    worst = rows.reduce((a, b) => (b.hit_rate < a.hit_rate ? b : a));
  const made = [
    figure(
      "Hit rate by layer",
      `${source(trace)} Lowest: layer ${worst.layer} with ${F.percent(worst.hit_rate)}.`,
      [
        columnChart({
          label: `Hit rate of ${times(rows.length, "layer")}`,
          names,
          x,
          head,
          y: { ...share, title: "Part of the chosen experts that was in memory", read: F.percent },
          series: [{ name: "hit rate", style: STYLES.expert, values: rates }],
        }),
        numbers("Hit rate by layer", list),
      ],
    ),
  ];
  if (rows.some((r) => known(r.read_bytes) && r.read_bytes > 0)) {
    const values = rows.map((r) => (known(r.read_bytes) ? r.read_bytes / tokens : null));
    made.push(
      figure(
        "Read by layer",
        trace.hits.kind === "recorded"
          ? "What a decoded token asked the drive for; reads ahead are apart."
          : "What a decoded token would ask the drive for.",
        [
          columnChart({
            label: "Bytes read for each layer of a token",
            names,
            x,
            head,
            y: {
              min: 0,
              max: greatest(values, 1),
              title: "Bytes a decoded token",
              as: axis.bytes,
              read: F.bytes,
              ticks: byteTicks,
            },
            series: [{ name: "read", style: STYLES.read, values }],
          }),
          numbers("Read by layer", list),
        ],
      ),
    );
  }
  if (rows.some((r) => known(r.wait_ms))) {
    const series = SEGMENTS.slice(0, 3).map((s) => ({
      name: s.name,
      style: s.style,
      values: rows.map((r) => (known(r[s.key + "_ms"]) ? r[s.key + "_ms"] / tokens : null)),
    }));
    const most = greatest(
      rows.map((r) => (r.dense_ms + r.wait_ms + r.expert_ms) / tokens),
      1e-6,
    );
    made.push(
      figure("Time by layer", "Mean of the decoded tokens.", [
        legend(series),
        columnChart({
          label: "Milliseconds of each layer of a token: dense, waiting, experts",
          names,
          x,
          head,
          series,
          y: { min: 0, max: most, title: "Milliseconds a decoded token", as: plain, read: F.ms },
        }),
        numbers("Time by layer", list),
      ]),
    );
  }
  return made;
}

/* ---- heat map ------------------------------------------------------------------------------- */

function heat(trace) {
  const layers = rowsOf(trace.heat);
  if (!layers.length) return [absent("No expert was used.")];
  const title = "How often each expert is chosen";
  const map = heatMap(
    layers,
    `Uses of ${times(
      sum(
        layers.map((l) => ({ n: l.uses.length })),
        "n",
      ),
      "expert",
    )} in ${times(layers.length, "layer")}`,
  );
  const choices = [
    ["By number", false],
    ["By use", true],
  ].map(([words, sorted]) =>
    el(
      "button",
      {
        type: "button",
        "aria-pressed": String(!sorted),
        onclick: (event) => {
          map.sorted = sorted;
          for (const b of event.target.parentNode.querySelectorAll("button"))
            b.setAttribute("aria-pressed", String(b === event.target));
          map.again();
        },
      },
      words,
    ),
  );
  return [
    figure(
      title,
      "Decoded tokens. A row is a layer, a cell an expert; colour is how many times as " +
        "often it is chosen as if all were chosen alike. " +
        "Sorted by use, the width of the strong part is the hot set of a layer.",
      [
        el(
          "div",
          { class: "controls", role: "group", "aria-label": "Order of the experts" },
          choices,
        ),
        map.plot,
        el(
          "p",
          { class: "scale" },
          "never",
          el("i", {}),
          F.decimal(map.most) + " times the even share",
        ),
        numbers(title, () => heatTable(layers)),
      ],
    ),
  ];
}

function heatTable(layers) {
  const widest = greatest(
    layers.map((l) => l.uses.length),
    0,
  );
  const columns = [{ name: "Layer", of: (r) => r.layer, as: F.count, head: true }];
  for (let e = 0; e < widest; e++)
    columns.push({ name: String(e), of: (r) => r.uses[e], as: F.count, none: "" });
  return table(columns, layers, "Uses of each expert, a column for each");
}

/* ---- miss-ratio curves ---------------------------------------------------------------------- */

const missing = (rate) => (known(rate) ? 1 - rate : null);
const sizeAxis = (trace) => ({
  min: 0,
  max: 1,
  title: known(trace.totals.slot_bytes)
    ? "Cache size: part of all experts, and bytes"
    : "Cache size: part of all experts",
  as: share.as,
  second: known(trace.totals.slot_bytes) ? (v) => axis.bytes(v * trace.totals.slot_bytes) : null,
});

function curves(trace) {
  const rows = rowsOf(trace.curves),
    v = trace.verdict;
  if (!rows.length) return [absent("There is nothing to compute curves from.")];
  const series = CURVES.map((c) => ({
    ...c,
    join: true,
    points: rows.map((r) => [r.share, missing(r[c.key + "_hit_rate"])]),
  })).filter((s) => s.points.some((p) => known(p[1])));
  const cold = trace.totals.cold_share;
  const marks = known(v.share)
    ? [
        {
          x: v.share,
          now: true,
          label: !known(trace.hits.slots)
            ? F.percent(v.share)
            : trace.hits.kind === "recorded"
              ? "recorded size"
              : "replayed size",
        },
      ]
    : [];
  const everywhere = rows.every((r) => known(r.lru_hit_rate));
  const words =
    "One pool of slots for all layers, as the engine has; reads ahead left out. " +
    (everywhere
      ? "LRU, LFU and the optimum, which knows the future, are exact at every size; the others " +
        "are replayed at the sizes with a marker."
      : "Experts are of several sizes, which share no slots, so that all are replayed, at the " +
        "sizes with a marker. The optimum knows the future.") +
    " No cache avoids first uses: they are the floor.";
  const columns = [
    column("Slots", "slots", F.count, true),
    column("Of the experts", "share", F.percent),
    column("Bytes", "bytes", F.bytes),
    ...series.map((s) => ({
      name: s.name,
      of: (r) => missing(r[s.key + "_hit_rate"]),
      as: F.percent,
      none: "not replayed",
    })),
  ];
  if (rows.some((r) => known(r.tokens_per_s)))
    columns.push({
      name: "Estimated speed, default",
      of: (r) => r.tokens_per_s,
      as: F.speed,
      none: "not estimated",
    });
  const made = [
    figure("Misses by cache size", words, [
      legend(series),
      lineChart({
        label: "Miss ratio by cache size for " + series.map((s) => s.name).join(", "),
        height: 380,
        x: sizeAxis(trace),
        marks,
        floors: known(cold) ? [{ y: cold, label: "first uses " + F.percent(cold) }] : [],
        y: { ...share, title: "Part of the uses that misses", read: F.percent },
        series,
        head: (x) => {
          const r = rows.find((row) => row.share === x);
          return slotsText(r.slots, r.share, r.bytes);
        },
      }),
      numbers("Misses by cache size", () => table(columns, rows, "Miss ratio by cache size")),
    ]),
  ];
  if (rows.some((r) => known(r.tokens_per_s))) made.push(speeds(trace, rows, marks));
  return made;
}

function speeds(trace, rows, marks) {
  const points = rows.map((r) => [r.share, r.tokens_per_s]),
    most = greatest(
      points.map((p) => p[1]),
      0.001,
    ),
    s = trace.speed;
  return figure(
    "Estimated speed by cache size",
    "An upper bound: in each layer reading and computing experts overlap fully. Drive " +
      `${F.rate(s.drive_bytes_per_s)} (${s.drive_source}), computing ${s.compute_source}` +
      (known(s.compute_ms) ? `: ${F.ms(s.compute_ms)} a token.` : "."),
    [
      lineChart({
        label: "Estimated tokens a second by cache size",
        height: 260,
        x: sizeAxis(trace),
        marks,
        series: [
          { name: "default policy", style: STYLES.default, join: true, markers: true, points },
        ],
        y: { min: 0, max: most * 1.1, title: "Tokens a second", as: plain, read: F.speed },
      }),
      numbers("Estimated speed", () =>
        table(
          [
            column("Slots", "slots", F.count, true),
            column("Of the experts", "share", F.percent),
            column("Bytes", "bytes", F.bytes),
            column("Speed", "tokens_per_s", F.speed),
          ],
          rows.filter((r) => known(r.tokens_per_s)),
          "Estimated speed",
        ),
      ),
    ],
  );
}

/* ---- reuse ---------------------------------------------------------------------------------- */

function reuse(trace) {
  const rows = rowsOf(trace.reuse),
    again = rowsOf(trace.again),
    made = [];
  if (rows.length) {
    const names = rows.map((r) =>
      r.to === null ? `${r.from}+` : r.from === r.to ? String(r.from) : `${r.from}–${r.to}`,
    );
    const most = greatest(
      rows.map((r) => r.share),
      0.01,
    );
    made.push(
      figure(
        "Reuse distances",
        "How many other experts of the layer were used between two uses of one. " +
          `${F.percent(trace.totals.reuse_cold_share)} of the uses are first ones and have ` +
          "no distance. " +
          "A cache with more slots a layer than the distance would have hit, by LRU.",
        [
          columnChart({
            label: "Share of the uses by reuse distance",
            names,
            x: { title: "Other experts of the layer used in between" },
            y: { min: 0, max: most, title: "Part of the uses", as: axis.percent, read: F.percent },
            series: [
              { name: "of the uses", style: STYLES.expert, values: rows.map((r) => r.share) },
            ],
          }),
          numbers("Reuse distances", () =>
            table(
              [
                { name: "Distance", of: (r) => names[rows.indexOf(r)], head: true },
                column("Uses", "uses", F.count),
                column("Share", "share", F.percent),
              ],
              rows,
              "Reuse distances",
            ),
          ),
        ],
      ),
    );
  }
  if (again.length) {
    const most = greatest(
      again.map((r) => r.probability),
      0.1,
    );
    made.push(
      figure(
        "Chosen again",
        "An expert that a token chose is chosen again by the next one with probability " +
          `${F.decimal(again[0].probability)}.`,
        [
          lineChart({
            label: "Probability that an expert is chosen again, by how many tokens later",
            height: 240,
            x: { min: 1, max: again.length, title: "Tokens later", as: F.count },
            y: {
              min: 0,
              max: Math.min(1, most * 1.15),
              title: "Probability",
              as: (v) => fixed(v, 2),
            },
            head: (v) => times(v, "token") + " later",
            series: [
              {
                name: "probability",
                style: STYLES.default,
                markers: true,
                points: again.map((r) => [r.tokens_later, r.probability]),
              },
            ],
          }),
          numbers("Chosen again", () =>
            table(
              [
                column("Tokens later", "tokens_later", F.count, true),
                { name: "Probability", of: (r) => r.probability, as: (v) => fixed(v, 4) },
              ],
              again,
              "Chosen again",
            ),
          ),
        ],
      ),
    );
  }
  return made.length ? made : [absent("Too few tokens to tell.")];
}

/* ---- prefetch and predictors ---------------------------------------------------------------- */

function prefetch(trace) {
  const made = [],
    rows = rowsOf(trace.prefetch),
    total = trace.totals;
  if (!trace.recorded.has_ops || !trace.recorded.has_states)
    made.push(absent("What was read ahead was not recorded."));
  else if (!rows.length)
    made.push(
      absent(
        "Nothing was read ahead in this recording" +
          (trace.recorded.prefetch ? ` (prefetch: ${trace.recorded.prefetch}).` : "."),
      ),
    );
  else {
    const series = [
      { name: "used", style: STYLES.expert, values: rows.map((r) => r.useful) },
      { name: "not used", style: STYLES.wait, values: rows.map((r) => r.begun - r.useful) },
    ];
    made.push(
      figure(
        "Reads ahead by layer",
        `${F.count(total.ahead_begun)} experts were read ahead of their layer, prompts ` +
          `included; ${F.percent(total.ahead_useful_share)} of them were used before they ` +
          "were evicted" +
          (known(total.ahead_bytes)
            ? `: ${F.bytes(total.ahead_useful_bytes)} of ${F.bytes(total.ahead_bytes)}.`
            : "."),
        [
          legend(series),
          columnChart({
            label: "Experts read ahead by layer, used and not used",
            names: rows.map((r) => String(r.layer)),
            x: { title: "Layer" },
            head: (i) => "Layer " + rows[i].layer,
            series,
            y: {
              min: 0,
              max: greatest(
                rows.map((r) => r.begun),
                1,
              ),
              title: "Experts read ahead",
              as: F.count,
            },
          }),
          numbers("Reads ahead by layer", () =>
            table(
              [
                column("Layer", "layer", F.count, true),
                column("Read ahead", "begun", F.count),
                column("Used", "useful", F.count),
                column("Useful", "share", F.percent),
                column("Bytes read ahead", "begun_bytes", F.bytes),
                column("Bytes useful", "useful_bytes", F.bytes),
              ],
              rows,
              "Reads ahead",
            ),
          ),
        ],
      ),
    );
  }
  const studies = rowsOf(trace.predictors);
  if (studies.length) made.push(predictors(studies));
  return made;
}

const PREDICTOR_STYLES = {
  router: STYLES.default,
  previous: STYLES.lru,
  frequent: STYLES.lfu,
  follows: STYLES.decay,
};

function predictors(studies) {
  const kinds = [...new Set(studies.map((s) => s.predictor))],
    budgets = studies.map((s) => s.experts);
  const style = (kind, i) => PREDICTOR_STYLES[kind] || Object.values(PREDICTOR_STYLES)[i % 4];
  const near = (s) => !known(s.layers_ahead) || s.layers_ahead === 1;
  const series = kinds
    .map((kind, i) => ({
      name: kind,
      style: style(kind, i),
      markers: true,
      points: studies
        .filter((s) => s.predictor === kind && near(s))
        .map((s) => [s.experts, s.recall]),
    }))
    .filter((s) => s.points.length);
  return figure(
    "How well coming experts can be predicted",
    "Recall: the part of the chosen experts that was among the predicted ones, one layer " +
      "ahead. More predicted experts find more, and read more in vain: precision is in the " +
      "numbers. " +
      (kinds.includes("router")
        ? ""
        : "The engine's own guess, the next layer's router, was not recorded."),
    [
      legend(series),
      lineChart({
        label: "Recall of the predictors by number of predicted experts",
        height: 280,
        x: {
          min: 0,
          max: greatest(budgets, 1) * 1.04,
          title: "Predicted experts a layer",
          as: F.count,
          ticks: () => [...new Set(budgets)],
        },
        series,
        y: { ...share, title: "Recall", read: F.percent },
        head: (v) => times(v, "predicted expert"),
      }),
      numbers("Predictors", () =>
        table(
          [
            column("Predictor", "predictor", F.text, true),
            { name: "Layers ahead", of: (r) => r.layers_ahead, as: F.count, none: "any" },
            column("Predicted", "experts", F.count),
            column("Recall", "recall", F.percent),
            column("Precision", "precision", F.percent),
          ],
          studies,
          "Predictors",
        ),
      ),
    ],
  );
}

/* ---- timeline and hottest ------------------------------------------------------------------- */

function tokens(trace) {
  if (!trace.recorded.has_times)
    return [absent("Times were not recorded, so there is no timeline.")];
  if (!trace.timeline_tokens || !trace.timeline_tokens.rows.length)
    return [absent("No decoded token was recorded to its end.")];
  return [tokenFigure(trace)];
}

function hottest(trace) {
  const rows = rowsOf(trace.hot);
  if (!rows.length) return [absent("No expert was used.")];
  const part = sum(rows, "share");
  return [
    el(
      "p",
      {},
      `The ${times(rows.length, "most used expert")} of ${F.count(trace.totals.experts)} ` +
        `take ${F.percent(part)} of all uses by decoded tokens.`,
    ),
    scrolling(
      table(
        [
          { name: "Rank", of: (r) => rows.indexOf(r) + 1, as: F.count },
          column("Layer", "layer", F.count, true),
          column("Expert", "expert", F.count),
          column("Uses", "uses", F.count),
          column("Share of all", "share", F.percent),
          ...(rows.some((r) => known(r.hit_rate))
            ? [column("Hit rate", "hit_rate", F.percent)]
            : []),
        ],
        rows,
        "The hottest experts",
      ),
      "The hottest experts",
      "tall",
    ),
  ];
}

/* ---- what was recorded ---------------------------------------------------------------------- */

function facts(trace) {
  const r = trace.recorded,
    t = trace.totals;
  const shape =
    `${times(t.moe_layers, "layer")} with experts, ${F.count(t.experts)} ` +
    `experts in all, ${F.count(t.token_experts)} used by a token`;
  const list = [
    ["File", F.text(trace.source.file)],
    ["Model", F.text(r.model)],
    ["Model file", F.text(r.model_file)],
    ["Architecture", F.text(r.arch)],
    ["Model hash", F.text(r.model_hash)],
    ["Shape", shape],
    ["Size of the model", F.bytes(r.model_bytes)],
    ["All experts", F.bytes(t.slot_bytes)],
    ["Recorded by", F.text(r.program)],
    ["Machine", F.text(r.machine)],
    ["Instruction set", F.text(r.isa)],
    ["Threads", F.count(r.threads)],
    ["Context", F.count(r.ctx_size)],
    ["Chunk of a prompt", F.count(r.chunk)],
    ["Memory budget", F.bytes(r.ram_bytes)],
    ["Slots", F.count(r.slots)],
    ["Cache policy", F.text(r.policy)],
    ["Prefetch", F.text(r.prefetch)],
    ["Reading by", F.text(r.io)],
    ["Lossy options", r.lossy === "" ? "none" : F.text(r.lossy)],
    ["Begun", F.text(r.recorded_at)],
    ["Tokens", `${F.count(t.decoded_tokens)} decoded, ${F.count(t.prompt_tokens)} of prompts`],
  ];
  const has = [
    ["router weights", r.has_weights],
    ["whether experts were in memory", r.has_states],
    ["times", r.has_times],
    ["expectations", r.has_hints],
    ["single reads", r.has_reads],
    ["every change of a slot", r.has_ops],
  ];
  list.push([
    "It holds",
    "choices" +
      has
        .filter((h) => h[1])
        .map((h) => ", " + h[0])
        .join(""),
  ]);
  const without = has.filter((h) => !h[1]).map((h) => h[0]);
  if (without.length) list.push(["It does not hold", without.join(", ")]);
  return [
    el(
      "dl",
      { class: "facts" },
      list.map(([name, value]) =>
        el(
          "div",
          {},
          el("dt", {}, name),
          el("dd", { class: value === NOT_RECORDED ? "unknown" : null }, value),
        ),
      ),
    ),
    r.has_times
      ? el(
          "p",
          { class: "subtitle" },
          "Times are those of a run that was being recorded, which makes it a little slower.",
        )
      : null,
  ];
}
