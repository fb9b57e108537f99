/* The heat map of experts by layers, on a canvas: it may have some ten thousand cells. One tab
 * stop; arrow keys move a cursor from cell to cell. */

/* Colours that CSS has computed, as [r, g, b]. */
function computedColours(names) {
  const probe = el("span", {});
  document.body.append(probe);
  const found = names.map((name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe)
      .color.match(/[\d.]+/g)
      .slice(0, 3)
      .map(Number);
  });
  probe.remove();
  return found;
}

/* 0..1 between the four colours of the scale. */
function heatColour(stops, x) {
  const at = Math.max(0, Math.min(0.9999, x)) * (stops.length - 1),
    i = Math.floor(at),
    part = at - i;
  return stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * part));
}

/* layers: [{layer, uses: [count by expert]}]. */
function heatMap(layers, label) {
  const widest = greatest(
    layers.map((l) => l.uses.length),
    1,
  );
  const totals = layers.map((l) => l.uses.reduce((a, b) => a + b, 0));
  // How often an expert is chosen, as a multiple of what an even choice would give.
  const multiple = (row, expert) =>
    totals[row] ? (layers[row].uses[expert] * layers[row].uses.length) / totals[row] : 0;
  const most = greatest(
    layers.map((l, row) =>
      greatest(
        l.uses.map((_, e) => multiple(row, e)),
        0,
      ),
    ),
    1,
  );
  const orders = layers.map((l) =>
    l.uses.map((_, e) => e).sort((a, b) => l.uses[b] - l.uses[a] || a - b),
  );
  const plot = plotBox(label, "Arrow keys move from cell to cell.");
  const state = { sorted: false, row: 0, column: 0, plot, most, width: 0 };
  const expertAt = (row, column) => (state.sorted ? orders[row][column] : column);
  state.read = () => {
    const { row, column } = state,
      l = layers[row],
      expert = expertAt(row, column);
    return {
      head: `Layer ${l.layer}, expert ${expert}`,
      lines: [
        { name: "uses", value: F.count(l.uses[expert]) },
        {
          name: "of the layer's",
          value: F.percent(totals[row] ? l.uses[expert] / totals[row] : 0),
        },
        { name: "of an even choice", value: F.decimal(multiple(row, expert)) + "\u00a0times" },
      ],
    };
  };
  state.draw = (width) => drawHeat(state, { layers, widest, multiple, expertAt, label, width });
  state.again = responsive(plot, state.draw);
  heatCursor(state, layers);
  return state;
}

function drawHeat(state, o) {
  const rows = o.layers.length,
    narrow = o.width < 500;
  const height = Math.max(narrow ? 3 : 5, Math.min(26, Math.floor(420 / rows)));
  const f = {
    x0: 36,
    y0: 26,
    w: o.width - 40,
    h: height * rows,
    cell: (o.width - 40) / o.widest,
    row: height,
  };
  state.frame = f;
  const total = f.y0 + f.h + 40,
    drawing = drawingOf(o.width, total, o.label);
  drawing.append(svg("text", { x: 0, y: 12, class: "axis-title" }, "Layer"));
  const every = Math.max(1, Math.ceil(15 / height));
  const step = [1, 2, 4, 5, 8, 10, 16, 20, 32, 50].find((s) => s >= every) || 64;
  for (let row = 0; row < rows; row += step)
    drawing.append(
      svg(
        "text",
        { x: 30, y: f.y0 + height * (row + 0.5) + 4, "text-anchor": "end" },
        o.layers[row].layer,
      ),
    );
  for (const v of ticks(0, o.widest - 1, Math.max(2, Math.floor(o.width / 70))).filter(
    Number.isInteger,
  ))
    xLabel(
      drawing,
      f.x0 + f.cell * (v + 0.5),
      { y1: f.y0 + f.h },
      state.sorted ? String(v + 1) : String(v),
    );
  drawing.append(
    svg(
      "text",
      { x: f.x0 + f.w / 2, y: total - 4, "text-anchor": "middle", class: "axis-title" },
      state.sorted ? "Rank within the layer" : "Expert",
    ),
  );
  const canvas = paintHeat(state, o, f);
  state.plot.replaceChildren(drawing, canvas);
}

function paintHeat(state, o, f) {
  const rows = o.layers.length,
    stops = computedColours(["--heat-0", "--heat-1", "--heat-2", "--heat-3"]);
  const small = document.createElement("canvas");
  small.width = o.widest;
  small.height = rows;
  const pen = small.getContext("2d"),
    image = pen.createImageData(o.widest, rows);
  o.layers.forEach((l, row) => {
    for (let column = 0; column < l.uses.length; column++) {
      // Square root: most experts are used little, and differences there should show too.
      const c = heatColour(stops, Math.sqrt(o.multiple(row, o.expertAt(row, column)) / state.most));
      image.data.set([...c, 255], 4 * (row * o.widest + column));
    }
  });
  pen.putImageData(image, 0, 0);
  const scale = window.devicePixelRatio || 1;
  const canvas = el("canvas", {
    width: Math.round(f.w * scale),
    height: Math.round(f.h * scale),
    class: "data-canvas",
    "aria-hidden": "true",
    style: `left:${f.x0}px;top:${f.y0}px;width:${f.w}px;height:${f.h}px`,
  });
  const big = canvas.getContext("2d");
  big.imageSmoothingEnabled = f.cell * scale < 1;
  big.drawImage(small, 0, 0, canvas.width, canvas.height);
  return canvas;
}

function heatCursor(state, layers) {
  const { plot } = state;
  const hide = () => plot.querySelectorAll(".tip, .cell-cursor").forEach((node) => node.remove());
  const show = (row, column, aloud) => {
    const f = state.frame;
    state.row = Math.max(0, Math.min(layers.length - 1, row));
    state.column = Math.max(0, Math.min(layers[state.row].uses.length - 1, column));
    hide();
    const reading = state.read(),
      x = f.x0 + f.cell * state.column,
      y = f.y0 + f.row * state.row;
    plot.append(
      el("div", {
        class: "cell-cursor",
        style:
          `left:${x - 3}px;top:${y - 3}px;` +
          `width:${Math.max(4, f.cell) + 6}px;height:${f.row + 6}px`,
      }),
    );
    putTip(plot, tipOf(reading), x + f.cell, y + f.row + 8);
    if (aloud) say(spoken(reading));
  };
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect(),
      f = state.frame;
    const column = Math.floor((event.clientX - box.left - f.x0) / f.cell),
      row = Math.floor((event.clientY - box.top - f.y0) / f.row);
    if (column < 0 || row < 0 || row >= layers.length || column >= layers[row].uses.length) hide();
    else show(row, column, false);
  });
  plot.addEventListener("pointerleave", () => {
    if (document.activeElement !== plot) hide();
  });
  plot.addEventListener("blur", hide);
  plot.addEventListener("focus", () => {
    if (plot.matches(":focus-visible")) show(state.row, state.column, true);
  });
  plot.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { row, column } = state,
      last = layers[row].uses.length - 1;
    const to = {
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      Home: [row, 0],
      End: [row, last],
      PageUp: [row - 10, column],
      PageDown: [row + 10, column],
    }[event.key];
    if (event.key === "Escape") hide();
    if (!to) return;
    event.preventDefault();
    show(to[0], to[1], true);
  });
}
