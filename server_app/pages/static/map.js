// The chain map: cells by state for all legs, and lines or coverage for the last chains.
"use strict";

const percent = (fraction) => `${(100 * fraction).toFixed(1)} %`;  // as operation.terminal.percent

const ChainMap = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MOST_LINES = 12;

  function shape(kind, attributes, text) {
    const element = document.createElementNS(SVG, kind);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function frame(width, height, label) {
    return shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  }

  // Letters of some scripts are twice as wide as others.
  const pen = document.createElement("canvas").getContext("2d");
  const MOST_WIDE = 130;

  function wide(text) {
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    return pen.measureText(text).width;
  }

  function shortened(name) {
    if (wide(name) <= MOST_WIDE) return name;
    const letters = [...name];
    while (wide(`${letters.join("")}…`) > MOST_WIDE) letters.pop();
    return `${letters.join("").trimEnd()}…`;
  }

  const left = (names) => 14 + Math.ceil(Math.max(...names.map((name) => wide(shortened(name)))));

  function ticks(first, last) {
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find(
      (size) => (last - first) / size <= 12) ?? 10000;
    const found = [];
    for (let leg = Math.ceil(first / step) * step; leg <= last; leg += step) {
      if (leg > 0) found.push(leg);
    }
    return found;
  }

  // --- all legs ---------------------------------------------------------------------------------

  function overview(map, width) {
    const row = map.names.length > 30 ? 14 : 16;
    const margin = left(map.names);
    const columns = Math.ceil(map.legs / map.per_column);
    const cell = (width - margin - 8) / columns;
    const height = map.names.length * row;
    const svg = frame(width, height + 34, `How ${map.names.length} hospitals took part in each leg`);
    const gap = row > 12 ? 2 : 1;
    map.rows.forEach((runs, index) => {
      const name = map.names[index];
      svg.append(shape("text", { x: margin - 6, y: index * row + row / 2 + 4, "text-anchor": "end" },
        shortened(name)));
      for (const [start, count, state] of runs) {
        const box = shape("rect", {
          x: margin + start * cell, y: index * row + 1, class: state,
          width: Math.max(0.6, count * cell - (cell > 4 ? 0.5 : 0)), height: row - gap,
        });
        const from = start * map.per_column + 1;
        const to = Math.min(map.legs, (start + count) * map.per_column);
        const word = { t: "trained", p: "parked", m: "missing" }[state];
        box.append(shape("title", {}, `${name}: ${word}, legs ${from} to ${to}`));
        svg.append(box);
      }
    });
    for (const column of cell >= 3 ? map.aggregations : []) {
      svg.append(shape("rect", {
        x: margin + (column + 1) * cell - 1, y: 0, width: 1.5, height, class: "bar",
      }));
    }
    for (const leg of ticks(1, map.legs)) {
      const x = margin + ((leg - 0.5) / map.per_column) * cell;
      svg.append(shape("text", { x, y: height + 14, "text-anchor": "middle" }, leg));
    }
    svg.append(shape("text", { x: width - 8, y: height + 30, "text-anchor": "end" }, "leg"));
    return svg;
  }

  // --- the last legs ----------------------------------------------------------------------------

  function lines(map, width, picked, onPick) {
    const { first, last, chains, aggregations } = map.window;
    const row = map.names.length > 30 ? 14 : 24;
    const margin = left(map.names);
    const height = map.names.length * row;
    const step = (width - margin - 30) / Math.max(1, last - first);
    const x = (leg) => margin + 12 + (leg - first) * step;
    const y = (index) => index * row + row / 2 + 2;
    const svg = frame(width, height + 34, "The chains' ways through the hospitals");
    map.names.forEach((name, index) => {
      svg.append(shape("line", { x1: margin, x2: width - 8, y1: y(index), y2: y(index), class: "axis" }));
      svg.append(shape("text", { x: margin - 6, y: y(index) + 4, "text-anchor": "end" }, shortened(name)));
    });
    for (const leg of aggregations) {
      svg.append(shape("rect", { x: x(leg + 0.5) - 1.5, y: 0, width: 3, height, class: "bar" }));
    }
    const drawn = map.names.length > MOST_LINES ? chains.filter((one) => one.name === picked) : chains;
    for (const chain of drawn) {
      const path = chain.stops.map(([leg, index]) => `${x(leg).toFixed(1)},${y(index)}`).join(" ");
      const state = picked === "" ? "" : chain.name === picked ? " on" : " off";
      const line = shape("polyline", { points: path, class: `chain${state}`, tabindex: 0 });
      line.style.stroke = `var(--c${chain.number % 12})`;
      line.append(shape("title", {}, `chain ${chain.name}: ${chain.seen} hospitals`));
      const pick = () => onPick(chain.name === picked ? "" : chain.name);
      line.addEventListener("click", pick);
      line.addEventListener("keydown", (event) => { if (event.key === "Enter") pick(); });
      svg.append(line);
      for (const [leg, index] of chain.stops) {
        const dot = shape("circle", { cx: x(leg), cy: y(index), r: state === " on" ? 4 : 2.5 });
        dot.style.fill = `var(--c${chain.number % 12})`;
        if (state === " off") dot.style.opacity = 0.12;
        svg.append(dot);
      }
    }
    for (const leg of ticks(first, last)) {
      svg.append(shape("text", { x: x(leg), y: height + 16, "text-anchor": "middle" }, leg));
    }
    svg.append(shape("text", { x: width - 8, y: height + 30, "text-anchor": "end" }, "leg"));
    return svg;
  }

  // How many hospitals each chain has seen: above twelve hospitals lines would be a hatch.
  function coverage(map, width, picked, onPick) {
    const { chains } = map.window;
    const latest = Math.max(...chains.map((one) => parseInt(one.name, 10)));
    const shown = chains.filter((one) => parseInt(one.name, 10) === latest);
    const height = 130, margin = 34;
    const step = (width - margin - 8) / shown.length;
    const total = map.names.length;
    const svg = frame(width, height + 44, "How many hospitals each chain has seen");
    for (const share of [0, 0.5, 1]) {
      const y = 8 + height * (1 - share);
      svg.append(shape("line", { x1: margin, x2: width - 8, y1: y, y2: y, class: "axis" }));
      svg.append(shape("text", { x: margin - 5, y: y + 4, "text-anchor": "end" }, Math.round(total * share)));
    }
    shown.forEach((chain, index) => {
      const tall = (height * chain.seen) / total;
      const box = shape("rect", {
        x: margin + index * step + 1, y: 8 + height - tall, width: Math.max(1, step - 2), height: tall,
        class: "t", tabindex: 0,
      });
      if (chain.name === picked) box.style.fill = `var(--c${chain.number % 12})`;
      box.style.cursor = "pointer";
      box.append(shape("title", {}, `chain ${chain.name}: ${chain.seen} of ${total} hospitals`));
      const pick = () => onPick(chain.name === picked ? "" : chain.name);
      box.addEventListener("click", pick);
      box.addEventListener("keydown", (event) => { if (event.key === "Enter") pick(); });
      svg.append(box);
    });
    svg.append(shape("text", { x: width - 8, y: height + 24, "text-anchor": "end" },
      "a bar for each chain since the last aggregation; height: hospitals it has trained at"));
    return svg;
  }

  // --- the forest plot --------------------------------------------------------------------------

  function forest(data, width) {
    const names = data.rows.map((one) => one.name);
    const margin = left([...names, "all, pooled"]);
    const row = 22;
    const right = width - 120;
    const x = (value) => margin + value * (right - margin);
    const total = data.rows.length + (data.pooled === null ? 0 : 1);
    const svg = frame(width, total * row + 30, "Accuracy on each hospital's held-out examples");
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(shape("line", { x1: x(share), x2: x(share), y1: 0, y2: total * row, class: "axis" }));
      svg.append(shape("text", { x: x(share), y: total * row + 16, "text-anchor": "middle" }, `${100 * share} %`));
    }
    data.rows.forEach((one, index) => {
      const y = index * row + row / 2;
      svg.append(shape("text", { x: margin - 6, y: y + 4, "text-anchor": "end" }, shortened(one.name)));
      if (one.interval) {
        svg.append(shape("line", { x1: x(one.interval[0]), x2: x(one.interval[1]), y1: y, y2: y, class: "whisker" }));
      }
      svg.append(shape("rect", { x: x(one.value) - 4, y: y - 4, width: 8, height: 8, class: "dot" }));
      const count = one.examples ? ` (n = ${one.examples})` : "";
      svg.append(shape("text", { x: right + 14, y: y + 4 }, `${percent(one.value)}${count}`));
    });
    if (data.pooled !== null) {
      const y = data.rows.length * row + row / 2, middle = x(data.pooled);
      svg.append(shape("text", { x: margin - 6, y: y + 4, "text-anchor": "end", class: "strong" }, "all, pooled"));
      svg.append(shape("polygon", { points: `${middle - 9},${y} ${middle},${y - 7} ${middle + 9},${y} ${middle},${y + 7}`, class: "diamond" }));
      svg.append(shape("text", { x: right + 14, y: y + 4, class: "strong" }, percent(data.pooled)));
    }
    return svg;
  }

  return { overview, lines, coverage, forest, MOST_LINES };
})();
