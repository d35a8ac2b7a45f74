"use strict";
// Draws timelines, heat map and step times on canvases. User text only ever reaches textContent and fillText.
(() => {
  const data = JSON.parse(document.getElementById("drawings").textContent);
  const tip = document.getElementById("tip");
  const KIND = ["work", "waiting", "communication"];
  const WAIT = 1;
  const redraws = [];

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toPrecision(3));
  const ms = (value) => {
    if (value === 0) return "0 ms";
    if (value < 0.9995) return digits(value * 1000) + " µs";
    return value < 999.5 ? digits(value) + " ms" : digits(value / 1000) + " s";
  };

  // A canvas as wide as its place and sharp on dense screens; returns its context in CSS pixels.
  function open(canvas, height) {
    const width = canvas.clientWidth;
    const scale = window.devicePixelRatio || 1;
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px " + getComputedStyle(document.body).fontFamily;
    pen.textBaseline = "middle";
    return pen;
  }

  function showTip(event, text) {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const x = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18;
    tip.style.left = Math.max(8, x) + "px";
    tip.style.top = (below + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : below) + "px";
  }

  // A round number on an axis needs no trailing zeros.
  const tick = (value) => ms(value).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");

  // Round numbers for an axis from `low` to `high` with about `count` ticks.
  function ticks(low, high, count) {
    const rough = (high - low) / Math.max(1, count) || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((one) => one * power >= rough) * power;
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(at);
    return found;
  }

  function hatch(pen) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const small = tile.getContext("2d");
    small.strokeStyle = color("wait");
    small.lineWidth = 2;
    for (const shift of [-8, 0, 8]) {
      small.beginPath();
      small.moveTo(shift, 8);
      small.lineTo(shift + 8, 0);
      small.stroke();
    }
    return pen.createPattern(tile, "repeat");
  }

  function timeline(canvas) {
    const one = data.timelines[Number(canvas.dataset.timeline)];
    const figure = canvas.closest("figure");
    const readout = figure.querySelector(".readout");
    const whole = figure.querySelector("button");
    const spans = one.spans.map(([rank, start, took, phase, name, kind, critical]) => ({
      rank, start: start / 1000, end: (start + took) / 1000, phase, name: one.names[name], kind, critical,
    }));
    const ranks = [...new Set(spans.map((span) => span.rank))].sort((a, b) => a - b);
    const lane = new Map(ranks.map((rank, at) => [rank, at]));
    const length = Math.max(...spans.map((span) => span.end), 1e-6);
    const tall = ranks.length <= 16 ? 34 : ranks.length <= 64 ? 14 : 6;
    const top = 24;
    let from = 0, to = length, chosen = -1, dragFrom = null, dragTo = null;
    let left = 0, wide = 1;
    const x = (time) => left + ((time - from) / (to - from)) * wide;

    function say(span) {
      const path = span.critical ? ", on the critical path" : "";
      const phase = data.phases[span.phase][0];
      const what = span.kind === WAIT ? `${phase}, waiting` : phase === KIND[span.kind] || span.kind === 0 ? phase : `${phase}, ${KIND[span.kind]}`;
      return `${span.name}\nrank ${span.rank}, ${what}: ${ms(span.end - span.start)} from ${ms(span.start)}${path}`;
    }

    function draw() {
      const height = top + ranks.length * tall + 4;
      const pen = open(canvas, height);
      left = canvas.clientWidth < 560 ? 26 : 64;
      wide = canvas.clientWidth - left - 2;
      const pattern = hatch(pen);
      pen.strokeStyle = color("line");
      pen.lineWidth = 1;
      pen.textAlign = "center";
      for (const time of ticks(from, to, wide / 110)) {
        pen.fillStyle = color("quiet");
        const half = pen.measureText(tick(time)).width / 2;
        pen.fillText(tick(time), Math.min(Math.max(x(time), left + half), left + wide - half), 9);
        pen.beginPath();
        pen.moveTo(x(time), 18);
        pen.lineTo(x(time), height);
        pen.stroke();
      }
      pen.textAlign = "left";
      const every = Math.ceil(14 / tall);
      ranks.forEach((rank, at) => {
        pen.fillStyle = color("quiet");
        if (at % every === 0) pen.fillText((left > 30 ? "rank " : "") + rank, 0, top + at * tall + tall / 2);
      });
      pen.save();
      pen.beginPath();
      pen.rect(left, 0, wide, height);
      pen.clip();
      const gap = tall > 10 ? 5 : 1;
      const colors = data.phases.map(([, name]) => color(name));
      spans.forEach((span, at) => {
        if (span.end < from || span.start > to) return;
        const y = top + lane.get(span.rank) * tall + gap / 2;
        const x0 = Math.max(x(span.start), left - 2);
        const w = Math.max(Math.min(x(span.end), left + wide + 2) - x0, 0.6);
        const bar = tall - gap - (tall > 10 ? 4 : 1);
        pen.fillStyle = span.kind === WAIT ? color("wash") : colors[span.phase];
        pen.fillRect(x0, y, w, bar);
        if (span.kind === WAIT) {
          pen.fillStyle = pattern;
          pen.fillRect(x0, y, w, bar);
        }
        if (w > 3) {
          pen.fillStyle = color("card");
          pen.fillRect(x0 + w - 0.8, y, 0.8, bar);
        }
        if (span.critical) {
          pen.fillStyle = color("ink");
          pen.fillRect(x0, y + bar + 1, w, tall > 10 ? 3 : 1);
        }
        const label = span.kind === WAIT ? "waiting" : span.name;
        if (tall > 20 && w > 34 && pen.measureText(label).width < w - 10) {
          pen.fillStyle = span.kind === WAIT ? color("quiet") : "#14161a";
          if (span.kind === WAIT) {
            const room = pen.measureText(label).width + 8;
            pen.fillStyle = color("wash");
            pen.fillRect(x0 + 4, y + 3, room, bar - 6);
            pen.fillStyle = color("quiet");
          }
          pen.fillText(label, x0 + 8, y + bar / 2 + 0.5);
        }
        if (at === chosen) {
          pen.strokeStyle = color("ink");
          pen.lineWidth = 2;
          pen.strokeRect(x0 + 1, y, Math.max(w - 2, 1), bar);
        }
      });
      if (dragFrom !== null && dragTo !== null) {
        pen.fillStyle = color("accent");
        pen.globalAlpha = 0.18;
        pen.fillRect(Math.min(dragFrom, dragTo), top, Math.abs(dragTo - dragFrom), height);
      }
      pen.restore();
      whole.hidden = from === 0 && to === length;
    }

    function at(event) {
      const box = canvas.getBoundingClientRect();
      const px = event.clientX - box.left;
      const row = Math.floor((event.clientY - box.top - top) / tall);
      const time = from + ((px - left) / wide) * (to - from);
      // The innermost span under the pointer: the last one that began.
      let found = null;
      for (const span of spans) if (lane.get(span.rank) === row && span.start <= time && time <= span.end) found = span;
      return { px, found };
    }

    function zoom(start, end) {
      const smallest = length / 1e5;
      from = Math.max(0, start);
      to = Math.min(length, Math.max(end, start + smallest));
      draw();
    }

    canvas.addEventListener("pointermove", (event) => {
      const { px, found } = at(event);
      if (dragFrom !== null) {
        dragTo = px;
        draw();
      }
      showTip(event, found ? say(found) : "");
    });
    canvas.addEventListener("pointerleave", (event) => showTip(event, ""));
    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse") return showTip(event, at(event).found ? say(at(event).found) : "");
      dragFrom = at(event).px;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", () => {
      const [a, b] = [dragFrom, dragTo];
      dragFrom = dragTo = null;
      if (a === null || b === null || Math.abs(a - b) < 6) return draw();
      const time = (px) => from + ((px - left) / wide) * (to - from);
      zoom(time(Math.min(a, b)), time(Math.max(a, b)));
    });
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowRight: 1, ArrowLeft: -1 };
      if (event.key in moves) {
        chosen = Math.min(spans.length - 1, Math.max(0, chosen + moves[event.key]));
      } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        const now = spans[Math.max(chosen, 0)];
        const row = lane.get(now.rank) + (event.key === "ArrowDown" ? 1 : -1);
        const there = spans.findIndex((span) => lane.get(span.rank) === row && span.end > now.start);
        if (there >= 0) chosen = there;
      } else if (event.key === "Enter" && chosen >= 0) {
        const span = spans[chosen];
        zoom(span.start - (span.end - span.start), span.end + (span.end - span.start));
      } else if (event.key === "Escape") {
        zoom(0, length);
      } else return;
      event.preventDefault();
      if (chosen >= 0) readout.textContent = say(spans[chosen]).replace("\n", " – ");
      draw();
    });
    whole.addEventListener("click", () => zoom(0, length));
    redraws.push(draw);
  }

  const sorted = (values) => values.filter((value) => value !== null).sort((a, b) => a - b);
  // The steps of one column: a column of a long run stands for several.
  const stepOf = (steps, at) => {
    const last = at + 1 < steps.length ? steps[at + 1] - 1 : steps[at];
    return last > steps[at] ? `steps ${steps[at]}–${last}` : `step ${steps[at]}`;
  };

  function stepAxis(pen, steps, left, wide, y) {
    pen.fillStyle = color("quiet");
    pen.textAlign = "center";
    const per = Math.max(1, Math.ceil(steps.length / Math.max(2, Math.floor(wide / 90))));
    for (let at = 0; at < steps.length; at += per) {
      const text = String(steps[at]);
      const half = pen.measureText(text).width / 2;
      const center = left + ((at + 0.5) / steps.length) * wide;
      pen.fillText(text, Math.min(Math.max(center, left + half), left + wide - half), y);
    }
    pen.textAlign = "left";
  }

  // Arrow keys walk over columns (and rows), the pointer points; `say(column, row)` is what is read out.
  function readable(canvas, columns, rows, locate, say, draw) {
    const readout = canvas.parentElement.querySelector(".readout");
    const state = { column: -1, row: 0 };
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const [column, row] = locate(event.clientX - box.left, event.clientY - box.top);
      const inside = column >= 0 && column < columns && row >= 0 && row < rows;
      showTip(event, inside ? say(column, row) : "");
    });
    canvas.addEventListener("pointerleave", (event) => showTip(event, ""));
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
      const move = moves[event.key];
      if (!move) return;
      event.preventDefault();
      state.column = Math.min(columns - 1, Math.max(0, state.column + move[0]));
      state.row = Math.min(rows - 1, Math.max(0, state.row + move[1]));
      readout.textContent = say(state.column, state.row).replaceAll("\n", ", ");
      draw();
    });
    return state;
  }

  function heat(canvas) {
    const { ranks, steps, values } = data.heat;
    const all = sorted(values.flat());
    // From 0, so that noise looks like noise; and one outlier must not make all else look the same.
    const most = all[Math.floor((all.length - 1) * 0.99)] ?? 0;
    const high = Math.min(all[all.length - 1] ?? 0, 4 * most) || 1;
    const top = 6;
    const tall = Math.max(3, Math.min(22, Math.floor(320 / ranks.length)));
    const bottom = top + ranks.length * tall + 4;
    let left = 0, wide = 1;
    const locate = (px, py) => [Math.floor(((px - left) / wide) * steps.length), Math.floor((py - top) / tall)];
    const say = (column, row) => {
      const value = values[row][column];
      return `rank ${ranks[row]}, ${stepOf(steps, column)}\n${value === null ? "not recorded" : ms(value)}`;
    };
    const mixed = (part) => `color-mix(in oklab, ${color("heat-high")} ${Math.round(part * 100)}%, ${color("heat-low")})`;

    function draw() {
      const pen = open(canvas, bottom + 48);
      left = canvas.clientWidth < 560 ? 26 : 64;
      wide = canvas.clientWidth - left - 2;
      const pattern = hatch(pen);
      const every = Math.ceil(14 / tall);
      // 64 shades, made once: a colour a cell would be slow.
      const shades = Array.from({ length: 65 }, (_, at) => mixed(at / 64));
      values.forEach((row, at) => {
        pen.fillStyle = color("quiet");
        if (at % every === 0) pen.fillText((left > 30 ? "rank " : "") + ranks[at], 0, top + at * tall + tall / 2);
        row.forEach((value, column) => {
          const x0 = left + (column / steps.length) * wide;
          const part = value === null ? 0 : Math.min(1, Math.max(0, value / high));
          pen.fillStyle = value === null ? pattern : shades[Math.round(part * 64)];
          pen.fillRect(x0, top + at * tall, wide / steps.length + 0.5, tall - (tall > 8 ? 2 : 0));
        });
      });
      stepAxis(pen, steps, left, wide, bottom + 10);
      const y = bottom + 30;
      for (let at = 0; at <= 100; at += 1) {
        pen.fillStyle = shades[Math.round((at / 100) * 64)];
        pen.fillRect(left + at * 1.2, y, 1.5, 9);
      }
      pen.fillStyle = color("quiet");
      const label = `0 to ${ms(high)}${all.length && all[all.length - 1] > high ? " and more" : ""}`;
      pen.fillText(label, left + 130, y + 5);
      if (all.length < values.length * steps.length && canvas.clientWidth > 430) {
        const after = left + 148 + pen.measureText(label).width;
        pen.fillStyle = pattern;
        pen.fillRect(after, y, 18, 9);
        pen.fillStyle = color("quiet");
        pen.fillText("not recorded", after + 25, y + 5);
      }
      if (state.column >= 0) {
        pen.strokeStyle = color("ink");
        pen.lineWidth = 2;
        pen.strokeRect(left + (state.column / steps.length) * wide - 1, top + state.row * tall, wide / steps.length + 2, tall - 1);
      }
    }
    const state = readable(canvas, steps.length, ranks.length, locate, say, draw);
    redraws.push(draw);
  }

  function times(canvas) {
    const { steps, ranks, ms: series } = data.times;
    const columns = steps.map((_, at) => sorted(series.map((row) => row[at])));
    const highest = Math.max(...columns.map((column) => column[column.length - 1] ?? 0), 1e-6) * 1.08;
    const tall = 190, top = 22;
    let left = 0, wide = 1;
    const y = (value) => top + tall - (value / highest) * tall;
    const x = (at) => left + ((at + 0.5) / steps.length) * wide;
    const locate = (px) => [Math.floor(((px - left) / wide) * steps.length), 0];
    const say = (column) => {
      const found = columns[column];
      if (!found.length) return `${stepOf(steps, column)}\nnot recorded`;
      if (ranks.length > 8) return `${stepOf(steps, column)}\n${ms(found[0])} to ${ms(found[found.length - 1])}`;
      const each = ranks.map((rank, at) => `rank ${rank}: ${series[at][column] === null ? "not recorded" : ms(series[at][column])}`);
      return `${stepOf(steps, column)}\n${each.join("\n")}`;
    };

    function draw() {
      const pen = open(canvas, top + tall + 26);
      left = 56;
      wide = canvas.clientWidth - left - 2;
      pen.lineWidth = 1;
      for (const value of ticks(0, highest, 4)) {
        pen.strokeStyle = color("line");
        pen.beginPath();
        pen.moveTo(left, y(value));
        pen.lineTo(left + wide, y(value));
        pen.stroke();
        pen.fillStyle = color("quiet");
        pen.textAlign = "right";
        pen.fillText(tick(value), left - 8, y(value));
      }
      pen.textAlign = "left";
      columns.forEach((column, at) => {
        if (!column.length) return;
        const low = y(column[0]), high = y(column[column.length - 1]);
        pen.globalAlpha = 0.28;
        pen.fillStyle = color("phase-forward");
        pen.fillRect(x(at) - wide / steps.length / 2, high - 1, wide / steps.length + 0.4, low - high + 2);
        pen.globalAlpha = 1;
      });
      pen.strokeStyle = color("phase-backward");
      pen.lineWidth = 1.5;
      pen.beginPath();
      let open_ = false;
      columns.forEach((column, at) => {
        if (!column.length) {
          open_ = false;
          return;
        }
        const middle = y(column[Math.floor((column.length - 1) / 2)]);
        if (open_) pen.lineTo(x(at), middle);
        else pen.moveTo(x(at), middle);
        open_ = true;
      });
      pen.stroke();
      let free = left;
      for (const [step, text] of data.markers) {
        let at = steps.findLastIndex((one) => one <= step);
        if (at < 0) at = 0;
        pen.strokeStyle = pen.fillStyle = color("quiet");
        pen.setLineDash([3, 3]);
        pen.beginPath();
        pen.moveTo(x(at), 14);
        pen.lineTo(x(at), top + tall);
        pen.stroke();
        pen.setLineDash([]);
        const half = pen.measureText(text).width / 2;
        const start = Math.min(Math.max(x(at) - half, left), left + wide - 2 * half);
        if (start >= free) {
          pen.fillText(text, start, 7);
          free = start + 2 * half + 10;
        }
      }
      stepAxis(pen, steps, left, wide, top + tall + 14);
      if (state.column >= 0) {
        pen.fillStyle = color("ink");
        pen.fillRect(x(state.column) - 0.75, top, 1.5, tall);
      }
    }
    const state = readable(canvas, steps.length, 1, locate, say, draw);
    redraws.push(draw);
  }

  document.querySelectorAll("canvas[data-timeline]").forEach(timeline);
  document.querySelectorAll("canvas[data-heat]").forEach(heat);
  document.querySelectorAll("canvas[data-times]").forEach(times);
  const redraw = () => redraws.forEach((draw) => draw());
  redraw();
  let planned = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(planned);
    planned = requestAnimationFrame(redraw);
  });
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((one) => { one.open = true; });
    redraw();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
