"use strict";
// One page: asks the daemon each second for what is new, and draws it.

const HOUR = 3600;
const COLOURS = ["#2f7fd8", "#e0792b", "#2c9c5b", "#b24ac2"];
const $ = (id) => document.getElementById(id);

const state = { started: 0, times: [], columns: {}, events: 0, seconds: 900, status: null };

// Units

function scaled(value, units, step) {
  if (value === null || value === undefined || !isFinite(value)) return "-";
  let unit = 0;
  while (Math.abs(value) >= step && unit + 1 < units.length) { value /= step; unit += 1; }
  return (value >= 100 || value === 0 || (unit === 0 && Number.isInteger(value)) ? value.toFixed(0) : value.toFixed(1)) + units[unit];
}
const bytes = (value) => scaled(value, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"], 1024);
const rate = (value) => { const text = bytes(value); return text === "-" ? text : text + "/s"; };
const count = (value) => scaled(value, ["", " k", " M", " G"], 1000);
const ratio = (value) => (value === null || value === undefined || !isFinite(value) ? "-" : (value * 100).toFixed(1) + " %");
function seconds(value) {
  if (value === null || value === undefined || !isFinite(value)) return "-";
  if (value < 1e-3) return (value * 1e6).toFixed(0) + " µs";
  if (value < 1) return (value * 1e3).toFixed(1) + " ms";
  return value.toFixed(1) + " s";
}
function duration(total) {
  const s = Math.round(total);
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  if (s >= 60) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${s} s`;
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Charts over time

const CHARTS = [
  { title: "Throughput of clients", format: rate, series: [["read", "read_bytes_per_second"], ["written", "written_bytes_per_second"]] },
  { title: "Requests each second", format: count, series: [["reads", "reads_per_second"], ["writes", "writes_per_second"], ["flushes", "flushes_per_second"]] },
  { title: "Latency", format: seconds, logarithmic: true, series: [["read p50", "read_p50_seconds"], ["read p99", "read_p99_seconds"], ["write p50", "write_p50_seconds"], ["write p99", "write_p99_seconds"]] },
  { title: "Hit ratio", format: ratio, most: 1, series: [["reads", "read_hit_ratio"], ["writes", "write_hit_ratio"]] },
  { title: "Dirty data", format: bytes, series: [["dirty", "dirty_bytes"]] },
  { title: "Write-back, promotion, bypass", format: rate, series: [["written back", "written_back_bytes_per_second"], ["promoted", "promoted_bytes_per_second"], ["bypassed", "bypassed_bytes_per_second"]] },
  { title: "Devices", format: rate, series: [["cache read", "cache_read_bytes_per_second"], ["cache written", "cache_written_bytes_per_second"], ["origin read", "origin_read_bytes_per_second"], ["origin written", "origin_written_bytes_per_second"]] },
  { title: "Cached data", format: bytes, series: [["cached", "cached_bytes"]] },
];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const axis = (more) => Object.assign({ stroke: () => colour("--faint"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { stroke: () => colour("--line"), width: 1 } }, more);
const width = (card) => Math.max(200, card.clientWidth - 26);

function yScale(chart) {
  if (chart.logarithmic) return { distr: 3, log: 10 };
  return { range: (_, __, most) => [0, chart.most || Math.max(most || 0, 1) * 1.08] };
}

function options(chart, card, xScale, series, xAxis) {
  return {
    width: width(card), height: 190, cursor: { y: false }, legend: { live: true },
    scales: { x: xScale, y: yScale(chart) },
    axes: [axis(xAxis), axis({ size: 74, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : chart.format(tick))) })],
    series: [series, ...chart.series.map(([label], at) => ({ label, stroke: COLOURS[at], width: 1.5, spanGaps: true, points: { show: false }, value: (plot, value, at, index) => chart.format(atRest(plot, at, index, value)) }))],
  };
}

// The value of a legend that nobody points at: the last, or that of the place which the plot says.
function atRest(plot, at, index, value) {
  if (index !== null && index !== undefined) return value;
  const column = plot.data && plot.data[at];
  if (!column || column.length === 0) return null;
  return column[plot.restIndex === undefined ? column.length - 1 : plot.restIndex];
}

function setData(plot, data) {
  plot.setData(data, true);
  // Legends at rest follow the data.
  if (plot.cursor.idx === null || plot.cursor.idx === undefined) plot.setLegend({ idx: null }, false);
}

function clock(unix) { return new Date(unix * 1000).toLocaleTimeString(); }

function makeCharts() {
  for (const chart of CHARTS) {
    chart.card = element("article", { class: "card" }, element("h2", {}, chart.title));
    $("charts").append(chart.card);
    const time = { label: "time", value: (plot, value, at, index) => { const unix = atRest(plot, at, index, value); return unix === null ? "-" : clock(unix); } };
    chart.plot = new uPlot(options(chart, chart.card, { time: true }, time, { values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })), space: 60 }), [[], ...chart.series.map(() => [])], chart.card);
  }
  new ResizeObserver(() => {
    for (const chart of CHARTS) chart.plot.setSize({ width: width(chart.card), height: 190 });
    for (const view of curves.values()) if (view.plot) view.plot.setSize({ width: width(view.card), height: 190 });
  }).observe($("charts"));
}

function drawCharts() {
  const now = state.times.length ? state.times[state.times.length - 1] : Date.now() / 1000;
  // A daemon that is younger than the span fills the chart all the same.
  const oldest = state.times.length ? state.times[0] : now;
  const from = Math.max(now - state.seconds, Math.min(oldest, now - 60));
  let first = state.times.findIndex((time) => time >= from);
  if (first < 0) first = 0;
  const times = state.times.slice(first);
  for (const chart of CHARTS) {
    setData(chart.plot, [times, ...chart.series.map(([, name]) => (state.columns[name] || []).slice(first))]);
    chart.plot.setScale("x", { min: from, max: now });
  }
}

// What is new

async function get(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(8000) });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

function forget() {
  state.times = [];
  state.columns = {};
  state.events = 0;
  $("events").replaceChildren();
}

async function refreshHistory() {
  const since = state.times.length ? state.times[state.times.length - 1] : 0;
  let news = await get(`api/history?since=${since}`);
  if (news.started_unix_seconds !== state.started) {
    // Another daemon: its past is its own.
    forget();
    state.started = news.started_unix_seconds;
    if (since) news = await get("api/history?since=0");
  }
  state.times.push(...news.unix_seconds);
  const surplus = Math.max(0, state.times.length - HOUR);
  state.times.splice(0, surplus);
  for (const [name, values] of Object.entries(news.columns)) {
    const column = (state.columns[name] = state.columns[name] || []);
    column.push(...values);
    column.splice(0, surplus);
  }
}

async function refreshEvents() {
  for (const event of await get(`api/events?after=${state.events}`)) {
    state.events = event.number;
    $("events").prepend(element("li", { class: event.kind }, element("time", {}, clock(event.unix_seconds)), event.text));
  }
  while ($("events").children.length > 500) $("events").lastChild.remove();
}

const latest = (name) => { const column = state.columns[name]; return column && column.length ? column[column.length - 1] : null; };

function tile(id, name, value, more) {
  return element("div", { class: "tile", id: `tile-${id}` }, element("span", {}, name), element("b", {}, value), element("span", {}, more || ""));
}

function drawVolumes(volumes) {
  const slow = (times) => (times.count ? seconds(times.p99_ns / 1e9) : "-");
  $("volume-rows").replaceChildren(...volumes.map((volume) => {
    const away = volume.away !== undefined && volume.away !== null;
    const row = element("tr", away ? { class: "trouble", title: volume.away, "data-name": volume.name } : { "data-name": volume.name });
    const cells = [volume.name, away ? "not served" : volume.mode, volume.origin || "-", bytes(volume.size_bytes), bytes(volume.cached_bytes), bytes(volume.dirty_bytes), slow(volume.read_latency), slow(volume.write_latency)];
    row.append(...cells.map((text) => element("td", {}, text)));
    return row;
  }));
}

async function refreshSettings() {
  const settings = Object.entries(await get("api/settings"));
  $("settings").hidden = state.status === null || !state.status.cache;
  $("setting-rows").replaceChildren(...settings.map(([name, value]) => element("tr", {}, element("th", {}, name), element("td", {}, value))));
}

// The life of a device of the cache, as it says itself.
function healthTile(device, isOneOfSeveral) {
  const known = (value, text) => (value === null || value === undefined ? [] : [text(value)]);
  const health = device.health;
  const name = isOneOfSeveral ? `Life used, ${device.path}` : "Life of the SSD used";
  if (!health) return tile("health", name, "not known");
  const more = [
    ...health.warnings,
    ...known(health.spare_percent, (spare) => `spare ${spare} %`),
    ...known(health.media_errors, (errors) => `media errors ${errors}`),
    ...known(health.temperature_celsius, (degrees) => `${degrees} °C`),
    ...known(health.power_on_hours, (hours) => `on for ${hours} h`),
  ];
  const used = health.life_used_percent;
  return tile("health", name, used === null ? "-" : `${used} %`, more.join(", "));
}

function drawStatus(status) {
  $("about").textContent = `${status.version}, up ${duration(status.uptime_seconds)}, ${status.clients} client(s)` +
    (status.cache ? `, cache ${status.cache.device}` : ", no cache");
  $("trouble").replaceChildren(...status.trouble.map((trouble) => element("li", { "data-kind": trouble.kind }, trouble.text)));
  $("well").hidden = status.trouble.length > 0;
  drawVolumes(status.volumes);
  const late = status.lately;
  const hit = (hits, misses) => (hits + misses > 0 ? hits / (hits + misses) : null);
  const past = status.traffic;
  const tiles = [
    tile("read", "Reading", rate(latest("read_bytes_per_second")), `${count(latest("reads_per_second"))} reads/s`),
    tile("written", "Writing", rate(latest("written_bytes_per_second")), `${count(latest("writes_per_second"))} writes/s`),
    tile("p99", "Read p99", seconds(latest("read_p99_seconds")), `writes ${seconds(latest("write_p99_seconds"))}`),
  ];
  if (status.cache) {
    const cache = status.cache;
    tiles.unshift(tile("hit", "Read hits, last minute", ratio(hit(late.read_blocks_hit, late.read_blocks_missed)),
      `since start ${ratio(hit(past.read_blocks_hit, past.read_blocks_missed))}`));
    tiles.push(
      tile("cached", "Cached", bytes(cache.cached_bytes), `of ${bytes(cache.capacity_bytes)}`),
      tile("dirty", "Dirty", bytes(cache.dirty_bytes), `${rate(latest("written_back_bytes_per_second"))} written back`));
    if (cache.copies > 1) {
      const copying = cache.exposed_bytes > 0 || cache.is_copying;
      const said = cache.devices.length < 2 ? "no device may die" : copying ? `${bytes(cache.exposed_bytes)} on one device` : "any one device may die";
      tiles.push(tile("copies", "Copies of dirty data", cache.devices.length < 2 ? "1 of 2" : "2", said));
    }
  }
  const origin = past.origin_read_bytes + past.origin_written_bytes;
  const ssd = past.cache_read_bytes + past.cache_data_written_bytes + past.cache_metadata_written_bytes;
  tiles.push(tile("share", "Moved by the cache device", ratio(origin + ssd > 0 ? ssd / (origin + ssd) : null), `origins ${bytes(origin)}`));
  for (const device of status.cache ? status.cache.devices : []) tiles.push(healthTile(device, status.cache.devices.length > 1));
  $("tiles").replaceChildren(...tiles);
}

// Volumes: what a larger cache would give, and heat

const curves = new Map();

function curveView(name) {
  const card = element("article", { class: "card" }, element("h2", {}, `${name}: hit ratio by size of cache`));
  const gains = element("table", {});
  const heatCard = element("article", { class: "card" }, element("h2", {}, `${name}: heat over the last hour`));
  const canvas = element("canvas", { class: "heat", width: "120", height: "64" });
  const heatNote = element("p", { class: "note" });
  heatCard.append(canvas, heatNote);
  $("volumes").append(card, heatCard);
  const view = { card, heatCard, gains, canvas, heatNote, plot: null, note: element("p", { class: "note" }) };
  card.append(view.note, gains);
  curves.set(name, view);
  return view;
}

function drawCurve(view, volume) {
  const chart = { format: ratio, most: 1, series: [["all"], ["reads"], ["writes"]] };
  const points = volume.curve.filter((point) => point.size_bytes > 0);
  const data = [points.map((point) => point.size_bytes), points.map((point) => point.hit_ratio), points.map((point) => point.read_hit_ratio), points.map((point) => point.write_hit_ratio)];
  if (points.length < 2) {
    view.note.textContent = "Not enough was read or written yet.";
  } else if (!view.plot) {
    const size = { label: "cache", value: (plot, value, at, index) => bytes(atRest(plot, at, index, value)) };
    view.plot = new uPlot(options(chart, view.card, { time: false, distr: 3, log: 2 }, size, { values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : bytes(tick))), space: 80 }), data, view.card);
  }
  if (view.plot) {
    // At rest it says what the present cache gives.
    const larger = points.findIndex((point) => point.size_bytes >= volume.share_bytes);
    view.plot.restIndex = larger < 0 ? points.length - 1 : larger;
    setData(view.plot, data);
  }
  if (points.length >= 2) view.note.textContent = `Of ${bytes(volume.footprint_bytes)} in use, by a sample, for LRU. Its cache: ${bytes(volume.share_bytes)}.`;
  view.gains.replaceChildren(...volume.multiples.map((multiple) => element("tr", {},
    element("th", {}, multiple.factor === 1 ? "this cache" : `${multiple.factor} times as large`),
    element("td", {}, bytes(multiple.size_bytes)), element("td", {}, `${ratio(multiple.hit_ratio)} hits`))));
}

function drawHeat(view, volume) {
  const { canvas } = view;
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, canvas.width, canvas.height);
  const most = Math.max(1, ...volume.heat.flatMap((row) => row.requests));
  for (const row of volume.heat) {
    row.requests.forEach((requests, part) => {
      if (requests === 0) return;
      const warmth = Math.log1p(requests) / Math.log1p(most);
      pen.fillStyle = `hsl(${(55 - 55 * warmth).toFixed(0)} 90% ${(65 - 20 * warmth).toFixed(0)}% / ${(0.25 + 0.75 * warmth).toFixed(2)})`;
      pen.fillRect(canvas.width - 1 - row.rows_ago, canvas.height - 1 - part, 1, 1);
    });
  }
  view.heatNote.textContent = `Up: where on ${bytes(volume.size_bytes)}, from its beginning. Right: when, now at the edge. At most ${count(most)} requests in half a minute.`;
}

async function refreshVolumes() {
  const volumes = await get("api/volumes");
  for (const volume of volumes) {
    const view = curves.get(volume.name) || curveView(volume.name);
    drawCurve(view, volume);
    drawHeat(view, volume);
  }
  for (const [name, view] of curves) {
    if (volumes.some((volume) => volume.name === name)) continue;
    view.card.remove();
    view.heatCard.remove();
    curves.delete(name);
  }
}

// Living on

let turn = 0;
async function live() {
  try {
    await refreshHistory();
    await refreshEvents();
    state.status = await get("api/status");
    drawStatus(state.status);
    if (turn % 10 === 0) {
      await refreshVolumes();
      await refreshSettings();
    }
    turn += 1;
    if (!document.hidden) drawCharts();
    $("gone").hidden = true;
  } catch (error) {
    $("gone").textContent = `The daemon does not answer (${error.message}). Asking again …`;
    $("gone").hidden = false;
    turn = 0;
  }
  setTimeout(live, 1000);
}

function theme(wanted) {
  document.documentElement.dataset.theme = wanted;
  for (const drawn of [...CHARTS, ...curves.values()]) if (drawn.plot) drawn.plot.redraw();
}

const dark = matchMedia("(prefers-color-scheme: dark)");
theme(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
$("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
for (const button of $("spans").children) {
  button.addEventListener("click", () => {
    state.seconds = Number(button.dataset.seconds);
    for (const other of $("spans").children) other.setAttribute("aria-pressed", String(other === button));
    drawCharts();
  });
}
makeCharts();
live();
