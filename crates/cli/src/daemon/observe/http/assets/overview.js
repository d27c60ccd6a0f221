"use strict";
// The page of all caches: a line for each, asked for every two seconds.

const rows = document.querySelector("#caches tbody");
const gone = document.getElementById("gone");

function bytes(value) {
  const units = [" B", " KiB", " MiB", " GiB", " TiB", " PiB"];
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) { value /= 1024; unit += 1; }
  return (unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)) + units[unit];
}

function cell(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

function row(cache) {
  const link = cell("a", cache.name);
  link.href = `cache/${encodeURIComponent(cache.name)}/`;
  const line = cell("tr");
  line.dataset.name = cache.name;
  if (!cache.up) {
    line.append(cell("td", cache.name), cell("td", "does not answer"), cell("td"), cell("td"), cell("td"), cell("td"));
    line.className = "trouble";
    return line;
  }
  const now = cache.now;
  const state = now.trouble.length ? now.trouble.map((trouble) => trouble.kind).join(", ") : "no trouble";
  line.className = now.trouble.length ? "trouble" : "";
  line.append(cell("td", link), cell("td", state),
    cell("td", now.device ? `${bytes(now.cached_bytes)} of ${bytes(now.capacity_bytes)}` : "no cache"),
    cell("td", bytes(now.dirty_bytes)),
    cell("td", now.read_hit_ratio === null ? "-" : `${(now.read_hit_ratio * 100).toFixed(1)} %`),
    cell("td", now.volumes.join(", ")));
  return line;
}

async function live() {
  try {
    const answer = await fetch("api/caches", { cache: "no-store", signal: AbortSignal.timeout(8000) });
    if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
    rows.replaceChildren(...(await answer.json()).map(row));
    gone.hidden = true;
  } catch (error) {
    gone.textContent = `No daemon answers (${error.message}). Asking again …`;
    gone.hidden = false;
  }
  setTimeout(live, 2000);
}

document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
live();
