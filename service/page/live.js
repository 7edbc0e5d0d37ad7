// What the server is doing, asked once a second: the batch fills and empties before one's eyes.

import { get } from "./api.js";
import { h, svg } from "./dom.js";

const EVERY_MS = 1000;
const AFTER_ERROR_MS = 5000;
const KEPT = 60; // values of the curve
const PATIENCE_S = 10; // for which another node's readings are passed over, where several answer in turn
const ABSENT = { running: 0, waiting: 0, slots_used: 0, slots: 0, tokens: 0 }; // of a model that this node has not

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

function row(model, { running, waiting, slots_used: used, slots: all }, rate) {
  const says = [
    running || all ? `${running} running` : rate ? null : "idle",
    waiting ? `${waiting} waiting` : null,
    all ? `${used} of ${all} slots` : null,
    rate ? `${rate} tokens/s` : null,
  ];
  const text = says.filter(Boolean).join(", ");
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
    if (now.at === before?.at) return; // a reading is shared by all who ask within a second
    const last = now.node === before?.node ? before : null; // counters of one node alone have a difference
    if (before && !last && now.at - before.at < PATIENCE_S) return;
    const of = (id) => now.models[id] ?? ABSENT;
    const rate = (id) => {
      const counted = of(id).tokens - (last?.models[id] ?? of(id)).tokens;
      return counted > 0 ? Math.round(counted / (now.at - last.at)) : 0; // a counter begins anew with its node
    };
    const total = models.reduce((sum, { id }) => sum + rate(id), 0);
    const waiting = models.reduce((sum, { id }) => sum + of(id).waiting, 0);
    past.push(total);
    if (past.length > KEPT) past.shift();
    const { requests } = now;
    told.textContent = `${requests} ${requests === 1 ? "request" : "requests"} · ${total} tokens/s · ${waiting} waiting`;
    drawn.replaceChildren(curve(past));
    list.replaceChildren(...models.map(({ id }) => row(id, of(id), rate(id))));
    before = now;
  }

  async function look() {
    let pause = EVERY_MS;
    try {
      if (!document.hidden) {
        show(await (await get("live")).json());
      }
    } catch (error) {
      told.textContent = "The server does not answer.";
      pause = Math.max(pause, (error.retryAfter ?? 0) * 1000, AFTER_ERROR_MS);
    }
    setTimeout(look, pause);
  }
  look();
}
