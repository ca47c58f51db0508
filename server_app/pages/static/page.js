// Draws runs: one in detail, or several compared. Used by the dashboard and by reports.
"use strict";

const Page = (() => {
  const state = { runs: [], chosen: new Set(), picked: {}, hidden: {}, plots: [] };
  const WHOLE = [1, 2, 5].flatMap((digit) => [0, 1, 2, 3, 4, 5].map((zeros) => digit * 10 ** zeros)).sort((a, b) => a - b);
  const byId = (id) => document.getElementById(id);
  const colour = (index) => getComputedStyle(document.documentElement)
    .getPropertyValue(`--c${index % 12}`).trim();
  const named = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function make(kind, attributes = {}, ...children) {
    const element = document.createElement(kind);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "class") element.className = value;
      else element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  }

  // --- what is on the page ------------------------------------------------------------------------

  function show(runs, title) {
    state.runs = runs;
    if (title) document.title = title;
    byId("title").textContent = title || "FedDC";
    const known = new Set(runs.map((run) => run.name));
    for (const name of state.chosen) if (!known.has(name)) state.chosen.delete(name);
    if (!state.chosen.size) for (const run of atFirst(runs)) state.chosen.add(run.name);
    drawRuns();
    draw();
  }

  function atFirst(runs) {
    const chosen = runs.filter((run) => run.chosen);
    if (chosen.length) return chosen;
    return runs.length > 6 ? runs.slice(0, 1) : runs;
  }

  function drawRuns() {
    const nav = byId("runs");
    nav.hidden = state.runs.length < 2;
    const focused = nav.contains(document.activeElement) ? document.activeElement.value : null;
    nav.replaceChildren(...state.runs.map((run) => {
      const box = make("input", { type: "checkbox", value: run.name });
      box.checked = state.chosen.has(run.name);
      box.addEventListener("change", () => {
        if (box.checked) state.chosen.add(run.name);
        else if (state.chosen.size > 1) state.chosen.delete(run.name);
        drawRuns();
        draw();
      });
      const only = make("button", { type: "button", title: "Show only this run" }, "only");
      only.addEventListener("click", (event) => {
        event.preventDefault();
        state.chosen = new Set([run.name]);
        drawRuns();
        draw();
      });
      const badge = run.row ? "" : make("span", { class: `state ${run.state.split(" ")[0]}` }, run.state);
      return make("label", { class: box.checked ? "chosen" : "" }, box, run.title || run.name, badge, only);
    }));
    if (focused !== null) {
      for (const box of nav.querySelectorAll("input")) if (box.value === focused) box.focus();
    }
  }

  function draw() {
    const runs = state.runs.filter((run) => state.chosen.has(run.name));
    const scroll = window.scrollY;
    for (const plot of state.plots) plot.destroy();
    state.plots = [];
    const main = byId("main");
    main.replaceChildren();
    if (!runs.length) {
      status(make("span", {}, "There is no run yet."));
      return;
    }
    if (runs.length > 1) drawComparison(main, runs);
    else drawRun(main, runs[0]);
    window.scrollTo(0, scroll);
  }

  function status(...parts) { byId("status").replaceChildren(...parts); }

  function section(main, title, kind = "") {
    const found = make("section", { class: kind }, make("h2", {}, title));
    main.append(found);
    return found;
  }

  // --- one run ------------------------------------------------------------------------------------

  function drawRun(main, run) {
    const parts = [make("span", { class: `state ${run.state.split(" ")[0]}` }, run.state)];
    if (run.legs) parts.push(` · leg ${run.done} of ${run.legs}`);
    if (run.latest) parts.push(` · last event ${moment(run.latest)}`);
    if (run.reason) parts.push(` · ${run.reason}`);
    if (run.waiting) parts.push(` · ${run.waiting}`);
    status(...parts);
    if (run.note) main.append(make("section", { class: "note" }, make("p", {}, run.note)));
    const facts = section(main, "Result", "half third tall");
    facts.append(table(null, run.facts));
    facts.lastChild.className = "facts";
    // Before there are curves, what matters is who is there and who has approved.
    if (run.hospitals && !run.charts.length) main.prepend(drawHospitals(main, run));
    run.charts.forEach((chart) => drawChart(main, chart));
    if (run.hospitals && run.charts.length) drawHospitals(main, run);
    if (run.published && run.published.length) drawPublished(main, run.published);
    if (run.map) drawMap(main, run);
    if (run.forest) drawForest(main, run.forest);
    drawFindings(main, run);
    if (run.settings.length) {
      const box = section(main, "Settings", "half");
      const scroll = make("div", { class: "scroll", tabindex: "0" });
      scroll.append(table(null, run.settings));
      box.append(scroll);
    }
    const versions = Object.entries(run.versions);
    if (versions.length) {
      section(main, "Versions", "half").append(table(null, versions));
    }
  }

  function table(head, rows, numbers = new Set()) {
    const body = make("tbody");
    for (const row of rows) {
      body.append(make("tr", {}, ...row.map((cell, index) =>
        make("td", { class: numbers.has(index) ? "number" : "" }, cell instanceof Node ? cell : String(cell)))));
    }
    const found = make("table");
    if (head) {
      found.append(make("thead", {}, make("tr", {}, ...head.map((cell, index) =>
        make("th", { scope: "col", class: numbers.has(index) ? "number" : "" }, cell)))));
    }
    found.append(body);
    return found;
  }

  function drawHospitals(main, run) {
    const box = section(main, "Hospitals");
    const rows = run.hospitals.map((one) => [
      one.name,
      make("span", { class: `state ${one.state.split(" ")[0]}`, title: one.problem || "" },
        one.problem && one.problem !== one.state ? `${one.state}: ${one.problem}` : one.state),
      one.online === null ? "–" : one.online ? "yes" : "no",
      make("span", { class: "moment" }, one.last_seen ? moment(one.last_seen) : "–"),
      one.leg || "–",
      one.loss === null ? "–" : one.loss.toFixed(3),
      one.missing || "–",
      size(one.bytes_up),
      size(one.bytes_down),
    ]);
    const scroll = make("div", { class: "scroll", tabindex: "0" });
    scroll.append(table(
      ["hospital", "state", "connected", "last answer", "leg", "loss", "legs missing", "sent up", "sent down"],
      rows, new Set([4, 5, 6, 7, 8])));
    box.append(scroll);
    return box;
  }

  function drawPublished(main, hospitals) {
    const box = section(main, "Hospitals that publish their figures", "half");
    const shown = [
      ["training examples", (one) => one.examples, (value) => String(value)],
      ["last training loss", (one) => one.loss, (value) => value.toFixed(3)],
      ["held-out accuracy", (one) => one.accuracy, percent],
    ].filter(([, read]) => hospitals.some((one) => read(one) !== null));
    const rows = hospitals.map((one) => [one.name, ...shown.map(([, read, write]) =>
      (read(one) === null ? "–" : write(read(one))))]);
    const scroll = make("div", { class: "scroll", tabindex: "0" });
    scroll.append(table(["hospital", ...shown.map(([title]) => title)], rows, new Set([1, 2, 3])));
    box.append(scroll);
  }

  // With its day, unless that is today: reports are read later.
  function moment(seconds) {
    const then = new Date(1000 * seconds);
    const isToday = then.toDateString() === new Date().toDateString();
    return isToday ? then.toLocaleTimeString() : then.toLocaleString();
  }

  function size(bytes) {
    for (const unit of ["B", "kB", "MB", "GB"]) {
      if (bytes < 1000) return `${unit === "B" ? bytes : bytes.toFixed(1)} ${unit}`;
      bytes /= 1000;
    }
    return `${bytes.toFixed(1)} TB`;
  }

  // --- charts -------------------------------------------------------------------------------------

  function drawChart(main, chart, width = "half third chart") {
    const box = section(main, chart.unit ? `${chart.title}, ${chart.unit}` : chart.title, width);
    const host = make("div");
    box.append(host);
    const many = chart.series.length > 12;
    const [xs, ...ys] = uPlot.join(chart.series.map((one) => [one.x, one.y]));
    const axis = {
      stroke: named("--faint"), font: "12px system-ui, sans-serif",
      grid: { stroke: named("--line"), width: 1 }, ticks: { stroke: named("--line"), width: 1 },
    };
    const hidden = state.hidden[chart.title] ??= {};
    // Too many for a legend: the line under the mouse is named below the chart.
    const kind = chart.x === "legs" ? "hospitals" : "runs";
    const hint = `${chart.series.length} ${kind}, one line each; point at a line for its name`;
    const name = make("p", { class: "faint name" }, hint);
    let near = 0;
    const plot = new uPlot({
      width: host.clientWidth || 600, height: 280,
      scales: { x: { time: false } },
      legend: { show: !many, live: !many },
      cursor: { drag: { x: true, y: false }, focus: { prox: many ? 30 : -1 } },
      focus: { alpha: many ? 0.6 : 1 },
      axes: [{ ...axis, incrs: WHOLE, label: chart.x, labelFont: "12px system-ui, sans-serif", labelSize: 18 }, { ...axis, size: 52 }],
      series: [{ label: chart.x }, ...chart.series.map((one, index) => ({
        label: one.label, width: many ? 1 : 2, spanGaps: true,
        stroke: many ? (_, line) => named(line === near ? "--accent" : "--many") : colour(one.colour ?? index),
        show: !hidden[one.label],
        points: { show: one.points && one.x.length <= 120, size: 6 },
        value: (_, value) => (value === null || value === undefined ? "–" : value.toPrecision(4)),
      }))],
      hooks: { setSeries: [(_, index, options) => {
        if (index && options.show !== undefined) hidden[chart.series[index - 1].label] = !options.show;
        if (many && options.focus !== undefined) {
          near = index ?? 0;
          name.textContent = near ? chart.series[near - 1].label : hint;
        }
      }] },
    }, [xs, ...ys], host);
    host.setAttribute("role", "img");
    host.setAttribute("aria-label", `${chart.title} over ${chart.x}`);
    state.plots.push(plot);
    if (many) box.append(name);
  }

  // --- the chain map and the forest plot ----------------------------------------------------------

  function drawMap(main, run) {
    const box = section(main, "Hospitals over the legs");
    const map = run.map;
    const width = Math.max(560, box.clientWidth - 34);
    box.append(make("div", { class: "key" },
      make("span", {}, make("i", { class: "t" }), "trained"),
      make("span", {}, make("i", { class: "p" }), "parked: asked, not answered yet"),
      make("span", {}, make("i", { class: "m" }), "missing"),
      make("span", {}, make("i", { class: "bar" }), "aggregation")));
    if (map.per_column > 1) box.append(make("p", { class: "faint" }, `${map.per_column} legs in a column; the worst state counts`));
    box.append(ChainMap.overview(map, width));
    if (!map.window) return;
    const chains = section(main, "Chains since the last two aggregations");
    const redraw = () => {
      const picked = state.picked[run.name] || "";
      const pick = (name) => { state.picked[run.name] = name; redraw(); };
      const list = make("select", { "aria-label": "Chain to show" },
        make("option", { value: "" }, "all chains"),
        ...map.window.chains.map((one) => make("option", { value: one.name },
          `chain ${one.name}: ${one.seen} of ${map.names.length} hospitals`)));
      list.value = picked;
      list.addEventListener("change", () => pick(list.value));
      const parts = [make("h2", {}, "Chains since the last two aggregations"), make("p", {}, list)];
      if (map.names.length > ChainMap.MOST_LINES) parts.push(ChainMap.coverage(map, width, picked, pick));
      if (map.names.length <= ChainMap.MOST_LINES || picked) parts.push(ChainMap.lines(map, width, picked, pick));
      chains.replaceChildren(...parts);
    };
    redraw();
  }

  function drawForest(main, data) {
    const isLong = data.rows.length > 20; // beside it there would be little but empty space
    const box = section(main, "Final model on each hospital's held-out examples", isLong ? "" : "half");
    box.append(ChainMap.forest(data, Math.max(520, box.clientWidth - 34)));
    if (data.rows.some((one) => one.interval)) box.append(make("p", { class: "faint" }, "Lines: 95 % intervals (Wilson)."));
  }

  // --- several runs -------------------------------------------------------------------------------

  function drawComparison(main, runs) {
    status(`${runs.length} ${runs[0].row ? "methods" : "runs"}`);
    const box = section(main, runs[0].row ? "Methods" : "Runs");
    const scroll = make("div", { class: "scroll", tabindex: "0" });
    scroll.append(runs[0].row ? methodTable(runs) : runTable(runs));
    box.append(scroll);
    const titles = [...new Set(runs.flatMap((run) => run.charts.map((chart) => chart.title)))];
    for (const title of titles) {
      const merged = [];
      let example = null;
      runs.forEach((run, index) => {
        const chart = run.charts.find((one) => one.title === title);
        if (!chart || chart.x !== "rounds") return;
        example ??= chart;
        const first = chart.series[0];
        merged.push({ ...first, label: run.title || run.method || run.name, colour: index });
      });
      const width = runs[0].row ? "half chart" : undefined; // the differences are beside it
      if (example) drawChart(main, { ...example, series: distinct(merged) }, width);
    }
    drawFindings(main, runs[0]);
    if (runs.some((run) => run.note)) main.append(make("section", {}, make("p", {}, runs[0].note)));
  }

  function runTable(runs) {
    const rows = runs.map((run) => [
      run.title || run.name,
      make("span", { class: `state ${run.state.split(" ")[0]}` }, run.state),
      run.method,
      run.accuracy === null ? "–" : percent(run.accuracy),
      ...["legs", "sent"].map((key) => Object.fromEntries(run.facts)[key] ?? "–"),
    ]);
    return table(["run", "state", "method", "test accuracy", "legs", "sent"], rows, new Set([3]));
  }

  // The methods of a comparison over several seeds: each brings its row of the table.
  function methodTable(runs) {
    return table(runs[0].row.map(([title]) => title), runs.map((run) => run.row.map(([, value]) => value)));
  }

  function drawFindings(main, { findings = [], claim = "" }) {
    if (!findings.length && !claim) return;
    const box = section(main, "Differences", "half");
    box.append(...[...findings, claim].filter(Boolean).map((text) => make("p", {}, text)));
  }

  function distinct(series) {
    const seen = {};
    return series.map((one) => {
      seen[one.label] = (seen[one.label] ?? 0) + 1;
      return seen[one.label] === 1 ? one : { ...one, label: `${one.label} (${seen[one.label]})` };
    });
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let resizing = 0;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(draw, 150); });
  return { show, status, make, draw };
})();

{
  const data = document.getElementById("data");
  if (data) {
    const { runs, title } = JSON.parse(data.textContent);
    Page.show(runs, title);
  }
}
