/* Charts of lines and of columns, drawn as SVG. A chart is one tab stop: arrow keys, Home and End
 * move a cursor through it, a box shows what is there, and the live region says it. */

/* How series differ: colour, and dash or hatching, and marker. */
const STYLES = {
  default: { color: "var(--s-default)", dash: "", marker: "circle", width: 2.5 },
  lru: { color: "var(--s-lru)", dash: "7 4", marker: "square", width: 2 },
  lfu: { color: "var(--s-lfu)", dash: "2 3", marker: "triangle", width: 2 },
  decay: { color: "var(--s-decay)", dash: "10 3 2 3", marker: "diamond", width: 2 },
  optimum: { color: "var(--s-optimum)", dash: "1 0", marker: "cross", width: 1.5 },
  dense: { color: "var(--s-dense)", hatch: "" },
  expert: { color: "var(--s-expert)", hatch: "" },
  wait: { color: "var(--s-wait)", hatch: "slope" },
  other: { color: "var(--s-other)", hatch: "" },
  read: { color: "var(--s-read)", hatch: "" },
  ahead: { color: "var(--s-read)", hatch: "slope" },
};

function marker(kind, x, y, color) {
  const paint = { style: "fill:" + color + ";stroke:var(--paper);stroke-width:1" };
  const d = {
    square: `M${x - 3.5},${y - 3.5}h7v7h-7z`,
    triangle: `M${x},${y - 4.5}l4.5,8h-9z`,
    diamond: `M${x},${y - 5}l5,5l-5,5l-5,-5z`,
  }[kind];
  if (kind === "circle") return svg("circle", { cx: x, cy: y, r: 4, class: "data-mark", ...paint });
  if (kind === "cross")
    return svg("path", {
      d: `M${x - 3.5},${y - 3.5}l7,7m0,-7l-7,7`,
      class: "data-mark",
      style: "fill:none;stroke-width:1.8;stroke:" + color,
    });
  return svg("path", { d, class: "data-mark", ...paint });
}

/* A rectangle of data, hatched where its style says so. */
function block(x, y, width, height, style) {
  const box = { x, y, width, height };
  const made = [svg("rect", { ...box, class: "data-mark", style: "fill:" + style.color })];
  if (style.hatch)
    made.push(svg("rect", { ...box, fill: "url(#hatch)", "pointer-events": "none" }));
  return made;
}
/* The hatching is defined once for the page. */
const hatching = () =>
  svg(
    "svg",
    { width: 0, height: 0, class: "visually-hidden", "aria-hidden": "true", focusable: "false" },
    svg(
      "defs",
      {},
      svg(
        "pattern",
        {
          id: "hatch",
          width: 5,
          height: 5,
          patternUnits: "userSpaceOnUse",
          patternTransform: "rotate(45)",
        },
        svg("rect", { width: 2, height: 5, style: "fill:var(--hatch)" }),
      ),
    ),
  );

const strokeOf = (style) =>
  `fill:none;stroke:${style.color};stroke-width:${style.width};stroke-linejoin:round;` +
  `stroke-dasharray:${style.dash || "none"}`;

function swatch(style) {
  const box = svg("svg", { width: 30, height: 14, "aria-hidden": "true", focusable: "false" });
  if (style.marker !== undefined) {
    box.append(
      svg("path", {
        d: "M1,7H29",
        style: strokeOf(style),
      }),
    );
    if (style.marker) box.append(marker(style.marker, 15, 7, style.color));
  } else {
    box.append(...block(6, 1, 18, 12, style));
  }
  return box;
}

const legend = (series) =>
  el(
    "ul",
    { class: "legend" },
    series.map((s) => el("li", {}, swatch(s.style), s.name)),
  );

/* ---- the cursor ----------------------------------------------------------------------------- */

/* c: {label, n, at: i => x, nearest: x => i, read: i => {head, lines: [{style, name, value}]}}. The
 * box stays within the plot. Returns the element that holds the drawing. */
function plotBox(label, keys) {
  return el("div", {
    class: "plot",
    tabindex: "0",
    role: "application",
    "aria-roledescription": "chart",
    "aria-label": label + ". " + (keys || "Left and right arrow keys read its values."),
  });
}

function tipOf(reading) {
  return el(
    "div",
    { class: "tip", "aria-hidden": "true" },
    el("p", { class: "tip-head" }, reading.head),
    reading.lines.map((line) =>
      el(
        "div",
        {},
        line.style ? swatch(line.style) : null,
        el("span", {}, line.name),
        el("span", {}, line.value),
      ),
    ),
  );
}
const spoken = (reading) =>
  reading.head + ": " + reading.lines.map((line) => `${line.name} ${line.value}`).join("; ");

function putTip(plot, tip, x, y) {
  plot.append(tip);
  const room = plot.clientWidth,
    w = tip.offsetWidth;
  const left =
    x + 14 + w <= room ? x + 14 : x - 14 - w >= 0 ? x - 14 - w : Math.max(0, (room - w) / 2);
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(Math.max(0, y))}px)`;
}

function attachCursor(plot, state) {
  let at = -1,
    tip = null;
  const hide = () => {
    if (tip) tip.remove();
    plot.querySelectorAll(".cursor-line").forEach((line) => line.remove());
    tip = null;
  };
  const show = (i, aloud) => {
    const c = state.current;
    if (!c || c.n === 0) return;
    at = Math.max(0, Math.min(c.n - 1, i));
    hide();
    const reading = c.read(at),
      x = c.at(at);
    c.drawing.append(svg("path", { d: `M${x},${c.top}V${c.bottom}`, class: "cursor-line" }));
    tip = tipOf(reading);
    putTip(plot, tip, x, c.top + 4);
    if (aloud) say(spoken(reading));
  };
  plot.addEventListener("pointermove", (event) => {
    const c = state.current;
    if (c) show(c.nearest(event.clientX - plot.getBoundingClientRect().left), false);
  });
  plot.addEventListener("pointerleave", () => {
    if (document.activeElement !== plot) hide();
  });
  plot.addEventListener("focus", () => {
    if (plot.matches(":focus-visible")) show(at < 0 ? 0 : at, true);
  });
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const c = state.current;
    if (!c || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.round(c.n / 10));
    const to = {
      ArrowLeft: at - 1,
      ArrowRight: at + 1,
      Home: 0,
      End: c.n - 1,
      PageUp: at - page,
      PageDown: at + page,
    }[event.key];
    if (event.key === "Escape") hide();
    if (to === undefined) return;
    event.preventDefault();
    show(to, true);
  });
}

/* ---- axes ----------------------------------------------------------------------------------- */

/* o.y: {min, max, title, as, ticks}. Draws grid and labels, returns {x0, x1, y0, y1, y: value =>
 * px}. */
function frameOf(drawing, width, height, o) {
  const yTicks = (o.y.ticks || ticks)(o.y.min, o.y.max, height > 200 ? 5 : 4);
  const words = yTicks.map(o.y.as);
  const left = Math.min(
    width * 0.28,
    14 +
      6.6 *
        greatest(
          words.map((w) => w.length),
          2,
        ),
  );
  const f = {
    x0: left,
    x1: width - (o.x.second ? 26 : 14),
    y0: (o.marks || []).some((m) => m.label) ? 42 : 28,
    y1: height - (o.x.second ? 52 : 40),
  };
  f.y = (v) => f.y1 - (f.y1 - f.y0) * ((v - o.y.min) / (o.y.max - o.y.min || 1));
  yTicks.forEach((v, i) => {
    const y = Math.round(f.y(v)) + 0.5;
    drawing.append(
      svg("path", { d: `M${f.x0},${y}H${f.x1}`, class: "grid-line" }),
      svg("text", { x: f.x0 - 6, y: y + 4, "text-anchor": "end" }, words[i]),
    );
  });
  drawing.append(
    svg("text", { x: 0, y: 12, class: "axis-title" }, o.y.title),
    svg("path", { d: `M${f.x0},${f.y1 + 0.5}H${f.x1}`, class: "axis-line" }),
  );
  drawing.append(
    svg(
      "text",
      { x: (f.x0 + f.x1) / 2, y: height - 4, "text-anchor": "middle", class: "axis-title" },
      o.x.title,
    ),
  );
  return f;
}

function xLabel(drawing, x, f, words, second) {
  drawing.append(
    svg("path", { d: `M${x},${f.y1}v4`, class: "axis-line" }),
    svg("text", { x, y: f.y1 + 17, "text-anchor": "middle" }, words),
  );
  if (second) drawing.append(svg("text", { x, y: f.y1 + 31, "text-anchor": "middle" }, second));
}

function drawingOf(width, height, label) {
  return svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    height,
    role: "img",
    "aria-label": label,
    focusable: "false",
  });
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* o: {label, height, x: {min, max, title, as, second, ticks}, y: {min, max, title, as}, series: [{
 * name, style, points: [[x, y or null]], markers}], marks: [{x, label, now}], floors: [{y,
 * label}], head: x => words}. */
function lineChart(o) {
  const plot = plotBox(o.label),
    state = {};
  const xs = [
    ...new Set(o.series.flatMap((s) => s.points.filter((p) => known(p[1])).map((p) => p[0]))),
  ].sort((a, b) => a - b);
  const maps = o.series.map((s) => new Map(s.points));
  responsive(plot, (width) => {
    const height = o.height || Math.round(Math.max(230, Math.min(360, width * 0.46)));
    const drawing = drawingOf(width, height, o.label);
    const f = frameOf(drawing, width, height, o);
    const x = (v) => f.x0 + (f.x1 - f.x0) * ((v - o.x.min) / (o.x.max - o.x.min || 1));
    for (const v of (o.x.ticks || ticks)(
      o.x.min,
      o.x.max,
      Math.max(2, Math.floor(width / (o.x.second ? 95 : 80))),
    ))
      xLabel(drawing, x(v), f, o.x.as(v), o.x.second ? o.x.second(v) : null);
    drawMarks(drawing, f, o, x);
    for (const s of o.series) drawLine(drawing, s, x, f);
    plot.replaceChildren(drawing);
    const at = (i) => x(xs[i]);
    state.current = {
      drawing,
      n: xs.length,
      at,
      top: f.y0,
      bottom: f.y1,
      nearest: (px) => nearestIndex(xs.length, at, px),
      read: (i) => ({
        head: o.head ? o.head(xs[i]) : o.x.as(xs[i]),
        lines: o.series
          .map((s, k) => ({ style: s.style, name: s.name, value: maps[k].get(xs[i]) }))
          .filter((line) => known(line.value))
          .map((line) => ({
            ...line,
            value: o.y.read ? o.y.read(line.value) : o.y.as(line.value),
          })),
      }),
    };
  });
  attachCursor(plot, state);
  return plot;
}

function drawLine(drawing, s, x, f) {
  let d = "",
    open = false;
  const shown = s.points.filter((p) => known(p[1])),
    gaps = !s.join;
  for (const p of gaps ? s.points : shown) {
    if (!known(p[1])) {
      open = false;
      continue;
    }
    d += `${open ? "L" : "M"}${x(p[0]).toFixed(1)},${f.y(p[1]).toFixed(1)}`;
    open = true;
  }
  drawing.append(
    svg("path", {
      d,
      class: "data-mark",
      style: strokeOf(s.style),
    }),
  );
  if (!s.style.marker || !shown.length) return;
  // Markers at most every 48 pixels, so that the lines stay visible.
  let last = -1e9;
  for (const p of shown) {
    const px = x(p[0]);
    if (!s.markers && px - last < 48 && shown.length > 1) continue;
    drawing.append(marker(s.style.marker, px, f.y(p[1]), s.style.color));
    last = px;
  }
}

function drawMarks(drawing, f, o, x) {
  for (const floor of o.floors || []) {
    const y = f.y(floor.y);
    drawing.append(
      svg("path", { d: `M${f.x0},${y}H${f.x1}`, class: "mark-line" }),
      svg("text", { x: f.x0 + 6, y: y - 6, class: "mark-label" }, floor.label),
    );
  }
  const marks = o.marks || [];
  for (const mark of marks) {
    const px = x(mark.x),
      end = px > (f.x0 + f.x1) / 2;
    drawing.append(
      svg("path", {
        d: `M${px},${f.y0 - (mark.now ? 8 : 0)}V${f.y1}`,
        class: mark.now ? "now-line" : marks.length > 8 ? "mark-line faint" : "mark-line",
      }),
    );
    if (mark.label)
      drawing.append(
        svg(
          "text",
          {
            x: px + (end ? -5 : 5),
            y: f.y0 - 5,
            "text-anchor": end ? "end" : "start",
            class: "mark-label",
          },
          mark.label,
        ),
      );
  }
}

function nearestIndex(n, at, px) {
  let low = 0,
    high = n - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((at(middle) + at(middle + 1)) / 2 < px) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* ---- columns -------------------------------------------------------------------------------- */

/* Stacked columns. o: {label, height, names: [words a column], x: {title}, y: {min, max, title,
 * as}, series: [{name, style, values: [number or null]}], over: such a series as strokes, head:
 * i => words}. */
function columnChart(o) {
  const plot = plotBox(o.label),
    state = {},
    n = o.names.length;
  responsive(plot, (width) => {
    const height = o.height || 230,
      drawing = drawingOf(width, height, o.label);
    const f = frameOf(drawing, width, height, o);
    const step = (f.x1 - f.x0) / Math.max(1, n),
      gap = step > 5 ? Math.min(6, step * 0.22) : step > 2.5 ? 0.7 : 0;
    const every = Math.max(
      1,
      Math.ceil(
        n /
          Math.max(
            1,
            Math.floor(
              (f.x1 - f.x0) /
                (10 +
                  7 *
                    greatest(
                      o.names.map((w) => w.length),
                      1,
                    )),
            ),
          ),
      ),
    );
    const at = (i) => f.x0 + step * (i + 0.5);
    for (let i = 0; i < n; i++) {
      if (i % every === 0) xLabel(drawing, at(i), f, o.names[i]);
      let base = o.y.min;
      for (const s of o.series) {
        const value = s.values[i];
        if (!known(value)) continue;
        const top = f.y(base + value),
          bottom = f.y(base);
        drawing.append(
          ...block(
            at(i) - step / 2 + gap / 2,
            top,
            Math.max(0.6, step - gap),
            Math.max(0, bottom - top),
            s.style,
          ),
        );
        base += value;
      }
      if (o.over && known(o.over.values[i]))
        drawing.append(
          svg("path", {
            d: `M${at(i) - step / 2},${f.y(o.over.values[i])}h${step}`,
            style: `stroke:${o.over.style.color};stroke-width:2`,
          }),
        );
    }
    plot.replaceChildren(drawing);
    const all = o.over ? [...o.series, o.over] : o.series;
    state.current = {
      drawing,
      n,
      at,
      top: f.y0,
      bottom: f.y1,
      nearest: (px) => Math.max(0, Math.min(n - 1, Math.floor((px - f.x0) / step))),
      read: (i) => ({
        head: o.head ? o.head(i) : o.names[i],
        lines: all
          .filter((s) => known(s.values[i]))
          .map((s) => ({ style: s.style, name: s.name, value: (o.y.read || o.y.as)(s.values[i]) })),
      }),
    };
  });
  attachCursor(plot, state);
  return plot;
}
