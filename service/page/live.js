// What the server is doing, read from its metrics once a second: the batch fills and empties before one's eyes.

import { get, hasKey } from "./api.js";
import { h, svg } from "./dom.js";

const EVERY_MS = 1000;
const WITH_KEY_MS = 5000; // a key's requests are counted
const KEPT = 60; // values of the curve
const SAMPLE = /^trifold_(\w+)\{([^}]*)\} (\S+)/gm;

// Adds up the samples of each name by model; those without one are under "".
function read(text) {
  const found = new Map();
  for (const [, name, labels, value] of text.matchAll(SAMPLE)) {
    if (labels.includes('route="/metrics"')) continue; // this page's own
    const model = /model="([^"]*)"/.exec(labels)?.[1] ?? "";
    const sums = found.get(name) ?? found.set(name, new Map()).get(name);
    sums.set(model, (sums.get(model) ?? 0) + Number(value));
  }
  return (name, model = "") => found.get(name)?.get(model) ?? 0;
}

function curve(values) {
  const top = Math.max(...values, 1);
  const points = values.map((value, x) => `${((KEPT - values.length + x) / (KEPT - 1)) * 100},${22 - (value / top) * 20}`);
  return svg(
    "svg",
    { viewBox: "0 0 100 24", preserveAspectRatio: "none", class: "curve", "aria-hidden": "true" },
    svg("polyline", { points: points.join(" "), "vector-effect": "non-scaling-stroke" }),
  );
}

function slots(used, all) {
  const cells = Array.from({ length: Math.min(all, 64) }, (_, cell) => h("i", { class: cell < used ? "on" : null }));
  return h("span", { class: "slots", "aria-hidden": "true" }, cells);
}

function row(model, { rate, running, waiting, used, all }) {
  const says = [running || all ? `${running} running` : rate ? null : "idle", waiting ? `${waiting} waiting` : null, all ? `${used} of ${all} slots` : null];
  const text = [...says, rate ? `${rate} tokens/s` : null].filter(Boolean).join(", ");
  return h(
    "li",
    { class: running || waiting ? "busy" : null },
    h("b", {}, model),
    all ? slots(used, all) : null,
    h("span", { class: "says" }, text),
  );
}

export function startLive(element, models) {
  const past = [];
  const told = h("span", { class: "told" });
  const drawn = h("span", {});
  const list = h("ul", { class: "models" });
  const details = h("details", {}, h("summary", {}, drawn, told), list);
  element.replaceChildren(details);
  let before = null;

  function show(now) {
    const counts = new Map(
      models.map(({ id }) => [id, now.value("generated_tokens_total", id) + now.value("prompt_tokens_total", id)]),
    );
    const seconds = before ? (now.at - before.at) / 1000 : 1;
    const rate = (id) => (before ? Math.max(0, Math.round((counts.get(id) - before.counts.get(id)) / seconds)) : 0);
    const total = models.reduce((sum, { id }) => sum + rate(id), 0);
    const waiting = models.reduce((sum, { id }) => sum + now.value("sequences_waiting", id), 0);
    past.push(total);
    if (past.length > KEPT) past.shift();
    const requests = now.value("requests_in_progress");
    told.textContent = `${requests} ${requests === 1 ? "request" : "requests"} · ${total} tokens/s · ${waiting} waiting`;
    drawn.replaceChildren(curve(past));
    list.replaceChildren(
      ...models.map(({ id }) =>
        row(id, {
          rate: rate(id),
          running: now.value("sequences_running", id),
          waiting: now.value("sequences_waiting", id),
          used: now.value("kv_slots_used", id),
          all: now.value("kv_slots", id),
        }),
      ),
    );
    before = { at: now.at, counts };
  }

  async function look() {
    let pause = hasKey() ? WITH_KEY_MS : EVERY_MS;
    try {
      if (!document.hidden) {
        const text = await (await get("metrics")).text();
        show({ value: read(text), at: performance.now() });
      }
    } catch (error) {
      told.textContent = "The server does not answer.";
      pause = Math.max(pause, (error.retryAfter ?? 0) * 1000, WITH_KEY_MS);
    }
    setTimeout(look, pause);
  }
  look();
}
