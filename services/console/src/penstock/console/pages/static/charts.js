// The charts of a pool: what waits, how long jobs take to start, how many workers there are.
(() => {
  "use strict";
  const EVERY_MS = 2000;
  const place = document.getElementById("charts");
  if (!place) return;
  const pool = place.dataset.pool;
  const seconds = Number(place.dataset.seconds);
  const asOf = place.dataset.asOf;  // empty for now
  const end = () => (asOf ? Date.parse(asOf) : Date.now()) / 1e3;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const duration = (v) => v == null ? "–" : v < 1 ? `${Math.round(v * 1000)} ms` : v < 120 ? `${+v.toFixed(1)} s` : `${+(v / 60).toFixed(1)} min`;
  const whole = (v) => v == null ? "–" : Math.round(v).toLocaleString("en");
  const charts = new Map();
  let answer = null;

  const held = (values) => {
    let last = null;
    return values.map((value) => { if (value != null) last = value; return last; });
  };
  const columns = (answer) => {
    const { at, values } = answer.points;
    const promise = at.map(() => answer.sla_seconds);
    return {
      waiting: [at, values.waiting],
      pickup: [at, values.pickup_p99_seconds, held(values.predicted_pickup_seconds), values.oldest_seconds, promise],
      workers: [at, values.ready, held(values.target)],
    };
  };
  const marks = (chart) => {
    if (!answer) return;
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.fillStyle = colour("--muted");
    for (const decision of answer.decisions) {
      const x = chart.valToPos(Date.parse(decision.at) / 1000, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      const up = decision.target > decision.current;
      const y = bbox.top + 3, size = 5 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(x - size, y + (up ? size : 0));
      ctx.lineTo(x + size, y + (up ? size : 0));
      ctx.lineTo(x, y + (up ? 0 : size));
      ctx.fill();
    }
    ctx.restore();
  };
  const axis = (format) => ({
    stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
    size: 58, values: (_, all) => all.map((v) => format === whole && !Number.isInteger(v) ? "" : format(v)), font: "12px system-ui, sans-serif",
  });
  const time = () => ({
    stroke: colour("--muted"), grid: { show: false }, ticks: { stroke: colour("--line") }, font: "12px system-ui, sans-serif", space: 90,
    values: (_, all) => all.map((second) => new Date(second * 1e3).toISOString().slice(...(seconds > 172800 ? [5, 10] : [11, 16]))),
  });
  const utc = uPlot.tzDate ? (stamp) => uPlot.tzDate(new Date(stamp * 1e3), "Etc/UTC") : undefined;
  const make = (name, format, series) => {
    const element = document.getElementById(`chart-${name}`);
    const size = { width: element.clientWidth, height: 170 };
    const options = {
      ...size, tzDate: utc, padding: [8, 24, 0, 0], legend: { live: true }, cursor: { sync: { key: "pool" }, drag: { x: false, y: false } },
      scales: { x: { range: () => [end() - seconds, end()] }, y: { range: (_, low, high) => [0, Math.max(high || 0, 1) * 1.1] } },
      axes: [time(), axis(format)],
      series: [{ label: "Time", value: (_, v) => v == null ? "–" : new Date(v * 1e3).toISOString().slice(11, 19) }, ...series.map((one) => ({ value: (_, v) => format(v), points: { show: false }, width: 1.5, spanGaps: true, ...one }))],
      hooks: { draw: [marks] },
    };
    element.textContent = "";
    element.classList.remove("none");
    return { element, plot: new uPlot(options, columns(answer)[name], element) };
  };
  const steps = uPlot.paths.stepped({ align: 1 });
  const kinds = {
    waiting: {
      measured: ["waiting"],
      none: "How many jobs wait was not measured in this stretch. The metrics service measures each pool once a second: does it run?",
      make: () => make("waiting", whole, [{ label: "waiting", stroke: colour("--accent"), fill: colour("--track") }]),
    },
    pickup: {
      measured: ["pickup_p99_seconds", "predicted_pickup_seconds", "oldest_seconds"],
      none: "No job started or waited in this stretch: there is no pickup time to show.",
      make: () => make("pickup", duration, [
        { label: "pickup p99", stroke: colour("--accent") },
        { label: "predicted", stroke: colour("--good-fill"), dash: [3, 4] },
        { label: "oldest waits", stroke: colour("--muted") },
        { label: "promise", stroke: colour("--bad-fill"), dash: [8, 4] },
      ]),
    },
    workers: {
      measured: ["ready", "target"],
      none: "No worker was measured and no number decided in this stretch.",
      make: () => make("workers", whole, [
        { label: "ready", stroke: colour("--good-fill"), paths: steps },
        { label: "decided", stroke: colour("--muted"), dash: [3, 4], paths: steps },
      ]),
    },
  };
  const drop = (name) => {
    charts.get(name)?.plot.destroy();
    charts.delete(name);
  };
  const draw = (isAnew = false) => {
    const { at, values } = answer.points;
    for (const [name, kind] of Object.entries(kinds)) {
      const isMeasured = at.length > 1 && kind.measured.some((one) => values[one].some((value) => value != null));
      if (isAnew || !isMeasured) drop(name);
      if (!isMeasured) {
        const element = document.getElementById(`chart-${name}`);
        element.textContent = kind.none;
        element.classList.add("none");
        element.removeAttribute("role");
        element.removeAttribute("aria-label");
      } else if (charts.has(name)) charts.get(name).plot.setData(columns(answer)[name]);
      else charts.set(name, kind.make());
    }
  };
  const last = (values) => values.findLast((value) => value != null);
  const describe = () => {
    const { at, values } = answer.points;
    const label = (name, text) => {
      if (!charts.has(name)) return;
      const { element } = charts.get(name);
      element.setAttribute("role", "img");
      element.setAttribute("aria-label", text);
    };
    const most = Math.max(0, ...values.waiting.filter((value) => value != null));
    label("waiting", `Waiting jobs: ${whole(last(values.waiting))} ${asOf ? "then" : "now"}, ${whole(most)} at most.`);
    label("pickup", `Pickup time p99: ${duration(last(values.pickup_p99_seconds))} lately; ${duration(answer.sla_seconds)} are promised.`);
    label("workers", `Workers: ${whole(last(values.ready))} ready, ${whole(last(held(values.target)))} decided; ${answer.decisions.length} changes.`);
    const body = document.querySelector("#charts-table tbody");
    const step = Math.max(1, Math.ceil(at.length / 60));
    const cells = held(values.target);
    const rows = at.map((second, i) => [new Date(second * 1e3).toISOString().slice(11, 19), whole(values.waiting[i]), duration(values.pickup_p99_seconds[i]), duration(values.oldest_seconds[i]), whole(values.ready[i]), whole(cells[i])]);
    const shown = rows.filter((_, i) => (rows.length - 1 - i) % step === 0).reverse();
    if (document.getElementById("charts-table").open) {
      body.replaceChildren(...shown.map((row) => {
        const line = document.createElement("tr");
        line.replaceChildren(...row.map((text, i) => {
          const cell = document.createElement(i ? "td" : "th");
          cell.textContent = text;
          if (i) cell.className = "number";
          return cell;
        }));
        return line;
      }));
    }
  };
  const load = async () => {
    if (document.hidden) return;
    const response = await fetch(`/api/v1/pools/${encodeURIComponent(pool)}/series?seconds=${seconds}${asOf ? `&as_of=${encodeURIComponent(asOf)}` : ""}`);
    if (!response.ok) return;
    answer = await response.json();
    draw();
    describe();
  };
  new ResizeObserver(() => {
    for (const chart of charts.values()) {
      const width = chart.element.clientWidth;
      if (width && width !== chart.plot.width) chart.plot.setSize({ width, height: 170 });
    }
  }).observe(place);
  addEventListener("themechange", () => { if (answer) draw(true); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (answer) draw(true); });
  document.getElementById("charts-table").addEventListener("toggle", () => { if (answer) describe(); });
  const quietly = () => load().catch(() => {});  // the header says when the console is silent
  quietly();
  if (!asOf) setInterval(quietly, EVERY_MS);
})();
