/* Puts the page together: the verdict, then the sections. */

/* ---- the verdict ---------------------------------------------------------------------------- */

/* value: a number and its unit, which is set smaller. */
function card(name, value, note) {
  const unknown = value === NOT_RECORDED,
    [number, ...unit] = value.split(NO_BREAK);
  const shown = unknown
    ? el("span", { class: "value unknown" }, value)
    : el(
        "span",
        { class: "value" },
        number,
        unit.length ? el("small", {}, NO_BREAK + unit.join(NO_BREAK)) : null,
      );
  return el(
    "li",
    {},
    el("span", { class: "name" }, name),
    shown,
    note ? el("span", { class: "note" }, note) : null,
  );
}

const gapOf = (v) =>
  known(v.optimum_hit_rate) && known(v.default_hit_rate)
    ? v.optimum_hit_rate - v.default_hit_rate
    : null;

function cards(trace) {
  const t = trace.totals,
    v = trace.verdict,
    gap = gapOf(v);
  return el(
    "ul",
    { class: "cards" },
    card(
      trace.hits.kind === "replayed" ? "Hit rate, replayed" : "Hit rate",
      F.percent(t.hit_rate),
      "of the chosen experts were in memory",
    ),
    card(
      "Waiting for the drive",
      F.percent(t.wait_share),
      known(t.wait_share) ? `${F.ms(t.token_wait_ms)} of ${F.ms(t.token_ms)} a token` : null,
    ),
    card("Decoding speed", F.speed(t.tokens_per_s), times(t.decoded_tokens, "decoded token")),
    card(
      "Read a token",
      F.bytes(t.token_read_bytes),
      known(t.drive_bytes_per_s) ? "drive: " + F.rate(t.drive_bytes_per_s) : null,
    ),
    card(
      "Short of the optimum",
      known(gap) ? fixed(100 * gap, 1) + NO_BREAK + "points" : NOT_RECORDED,
      known(gap)
        ? `default ${F.percent(v.default_hit_rate)}, optimum ${F.percent(v.optimum_hit_rate)}`
        : null,
    ),
  );
}

/* What the numbers mean, the most important first: [what it is about, sentences]. */
function findings(trace) {
  const t = trace.totals,
    v = trace.verdict,
    said = [],
    gap = gapOf(v);
  if (known(t.hit_rate))
    said.push([
      "Hits",
      `Of 100 experts that decoded tokens chose, ${of100(t.hit_rate)} were in memory` +
        (trace.hits.kind === "replayed"
          ? ` in a replay with ${slotsText(trace.hits.slots, trace.hits.share)}: the trace ` +
            "does not say what was."
          : ".") +
        (known(t.flying_share) && t.flying_share >= 0.0005
          ? ` Another ${of100(t.flying_share)} were being read already.`
          : "") +
        (known(t.cold_share)
          ? ` ${of100(t.cold_share)} were used for the first time; no cache has those.`
          : ""),
    ]);
  said.push([
    "Waiting",
    known(t.wait_share)
      ? `${F.percent(t.wait_share)} of the decoding time was waiting for the drive: ` +
        `${F.ms(t.token_wait_ms)} of the ${F.ms(t.token_ms)} that a token took.`
      : "How long tokens waited for the drive was not recorded.",
  ]);
  if (known(v.hits_begin_slots))
    said.push([
      "Where hits begin",
      `A token uses ${F.count(t.token_experts)} experts, layer after layer. With LRU hits ` +
        "begin at about " +
        `${slotsText(v.hits_begin_slots, v.hits_begin_share, v.hits_begin_bytes)}: a smaller ` +
        "cache loses an expert before its layer comes round again.",
    ]);
  const more = rowsOf(trace.steps),
    here = more.find((r) => r.factor === 1),
    grown = more.filter((r) => r.factor > 1 && known(r.default_hit_rate));
  if (here && known(here.default_hit_rate) && grown.length)
    said.push([
      "More memory",
      `With ${slotsText(here.slots, here.share, here.bytes)} the default policy hits ` +
        `${F.percent(here.default_hit_rate)} of the uses; ` +
        grown
          .map((r) => `with ${plain(r.factor)} times as many ${F.percent(r.default_hit_rate)}`)
          .join(", ") +
        "." +
        kneeWords(v),
    ]);
  if (known(gap))
    said.push([
      "A better policy",
      (known(trace.hits.slots)
        ? "At this size"
        : `With ${F.percent(v.share)} of the experts in memory`) +
        `, without reading ahead, the default policy hits ${F.percent(v.default_hit_rate)} ` +
        `and LRU ${F.percent(v.lru_hit_rate)}. The optimum, which knows the future, hits ` +
        `${F.percent(v.optimum_hit_rate)}: ` +
        `choosing better what to evict could gain at most ${fixed(100 * gap, 1)} points.`,
    ]);
  if (known(t.ahead_useful_share))
    said.push([
      "Reading ahead",
      `Of the experts that were read ahead, ${F.percent(t.ahead_useful_share)} were used ` +
        "before they were evicted.",
    ]);
  return el(
    "dl",
    { class: "findings" },
    said.map(([about, words]) => el("div", {}, el("dt", {}, about), el("dd", {}, words))),
  );
}

function kneeWords(v) {
  if (!known(v.knee_slots) || (known(v.share) && v.share >= v.knee_share)) return "";
  return (
    " The curve bends at about " +
    `${slotsText(v.knee_slots, v.knee_share, v.knee_bytes)}, where ` +
    `${F.percent(v.knee_hit_rate)} hit; beyond it a slot brings less than one before it.`
  );
}

/* What to do about it. */
function advice(trace) {
  const t = trace.totals,
    v = trace.verdict,
    more = rowsOf(trace.steps).find((r) => r.factor === 1.5);
  const gain =
    more && known(more.default_hit_rate) && known(v.default_hit_rate)
      ? more.default_hit_rate - v.default_hit_rate
      : null;
  if (!t.decoded_tokens)
    return [
      "Only prompts were recorded.",
      " Hits, waiting and what a cache would do are told of decoded tokens: record a run that " +
        "answers.",
    ];
  if (known(t.wait_share) && t.wait_share < 0.1)
    return [
      "Computing is the limit, not the drive.",
      ` Only ${F.percent(t.wait_share)} of the time is waiting: more memory or a faster ` +
        "drive would change little.",
    ];
  if (known(v.share) && known(v.hits_begin_share) && v.share <= v.hits_begin_share)
    return [
      "The cache is too small for hits.",
      " It holds no more than about one token's experts; the first memory that is added " +
        "brings the most.",
    ];
  if (known(gain) && gain > 0.04)
    return [
      "More memory pays.",
      ` Half as many slots again bring ${fixed(100 * gain, 1)} points of hit ` +
        "rate" +
        (known(v.knee_share) && v.share < v.knee_share
          ? "; the curve bends only beyond this size."
          : "."),
    ];
  if (
    known(v.optimum_hit_rate) &&
    known(v.default_hit_rate) &&
    v.optimum_hit_rate - v.default_hit_rate > 0.08
  )
    return [
      "Memory is past the bend of the curve; what is left is choosing and timing.",
      " Better eviction or reading ahead could gain what the optimum shows, and a faster " +
        "drive shortens each miss.",
    ];
  return [
    "Little is left for the cache.",
    known(t.wait_share)
      ? " What still waits, waits for the drive: a faster one, or smaller experts."
      : " Record a run with times to see whether it waits at all.",
  ];
}

function notes(trace) {
  const r = trace.recorded,
    said = [];
  if (r.cut)
    said.push(
      "The recording was cut off: the program did not end it" +
        (r.lost_bytes > 0 ? `, and ${F.bytes(r.lost_bytes)} at its end are lost` : "") +
        ". Everything before is complete.",
    );
  if (known(r.lossy) && r.lossy !== "")
    said.push(`The run used options that change answers: ${r.lossy}.`);
  if (r.has_states && !r.has_times)
    said.push("Times were not recorded: speed and waiting are unknown, not zero.");
  return said.length
    ? el(
        "ul",
        { class: "notes" },
        said.map((s) => el("li", {}, s)),
      )
    : null;
}

/* ---- the page ------------------------------------------------------------------------------- */

function section(id, title, content) {
  return el(
    "section",
    { id, "aria-labelledby": id + "-title" },
    el("h2", { id: id + "-title" }, title),
    content,
  );
}

function build() {
  const trace = data.a,
    r = trace.recorded,
    t = trace.totals,
    name = r.model || r.model_file || trace.source.file;
  const main = document.getElementById("main"),
    strong = advice(trace);
  document.title = `${name} - Sluice trace report`;
  const facts1 = [
    times(t.decoded_tokens, "decoded token"),
    t.prompt_tokens ? times(t.prompt_tokens, "prompt token") : null,
    `${F.count(t.moe_layers)} layers`,
    known(r.slots) ? times(r.slots, "slot") : null,
    known(r.ram_bytes) ? F.bytes(r.ram_bytes) + " of memory" : null,
    r.policy ? "policy " + r.policy : null,
  ]
    .filter(Boolean)
    .join(" · ");
  const parts = [
    data.b
      ? section("compare", "Two traces compared", comparison(trace, data.b, data.compare))
      : null,
    section("time", "Hit rate over time", overTime(trace)),
    section("layers", "By layer", byLayer(trace)),
    section("heat", "Experts and layers", heat(trace)),
    section("curves", "Cache size", curves(trace)),
    section("reuse", "Reuse", reuse(trace)),
    section("prefetch", "Reading ahead", prefetch(trace)),
    section("token", "One token", tokens(trace)),
    section("hot", "Hottest experts", hottest(trace)),
    section("recorded", "What was recorded", facts(trace)),
  ].filter(Boolean);
  main.append(
    el("h1", {}, name),
    el("p", { class: "subtitle" }, facts1),
    section("verdict", "In short", [
      notes(trace),
      cards(trace),
      el("p", { class: "advice" }, el("strong", {}, strong[0]), strong[1]),
      findings(trace),
    ]),
    ...parts,
    hatching(),
  );
  document.getElementById("foot").textContent =
    `Made by sluice ${data.version} from ` +
    `${trace.source.file}${data.b ? " and " + data.b.source.file : ""}. This file is ` +
    "complete in itself; it loads nothing.";
}

function contents() {
  const links = [...document.querySelectorAll("main > section")].map((part) =>
    el("a", { href: "#" + part.id }, part.querySelector("h2").textContent),
  );
  document.getElementById("contents").append(...links.map((link) => el("li", {}, link)));
  const seen = new Set();
  const watch = new IntersectionObserver(
    (entries) => {
      for (const entry of entries)
        entry.isIntersecting ? seen.add(entry.target.id) : seen.delete(entry.target.id);
      const first = links.find((link) => seen.has(link.hash.slice(1)));
      if (first)
        for (const link of links)
          link === first
            ? link.setAttribute("aria-current", "true")
            : link.removeAttribute("aria-current");
    },
    { rootMargin: "0px 0px -60% 0px" },
  );
  document.querySelectorAll("main > section").forEach((part) => watch.observe(part));
}

function themes() {
  const buttons = [...document.querySelectorAll("[data-theme-choice]")];
  const redraw = () => redraws.forEach((again) => again());
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const choice = button.dataset.themeChoice;
      if (choice === "auto") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = choice;
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      redraw();
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

build();
contents();
themes();
document.documentElement.dataset.ready = "true";
