// What the server is doing, asked once a second: the batch fills and empties before one's eyes.

import { get, wordsOf } from "./api.js";
import { button, counted, h, svg } from "./dom.js";

const EVERY_MS = 1000;
const AFTER_ERROR_MS = 5000;
const KEPT = 60; // values of the curve
const CELLS = 64; // the most that are drawn of a model's slots
const PATIENCE_MS = 10_000; // for which another node's readings are passed over, where several answer in turn
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
  const count = Math.min(all, CELLS);
  const lit = (used * count) / all; // where one cell is several slots, one of them lights it
  const cells = Array.from({ length: count }, (_, cell) => h("i", { class: cell < lit ? "on" : null }));
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
  // What changes each second is no part of its name, and the list has the room of the whole strip.
  const details = h("details", { ontoggle: () => drawRows() }, h("summary", {}, "Models"));
  let isPaused = false;
  const stop = button("Pause", () => {
    isPaused = !isPaused;
    stop.textContent = isPaused ? "Resume" : "Pause";
    before = null; // what was counted meanwhile is no rate
  }, { class: "chip" });
  element.replaceChildren(drawn, told, stop, details, list);
  let before = null;
  let shownAt = 0; // by this machine's clock: those of two nodes may differ
  let rows = [];

  function drawRows() {
    list.replaceChildren(...(details.open ? rows.map((each) => row(...each)) : []));
  }

  function show(now) {
    if (isPaused || now.at === before?.at) return; // a reading is shared by all who ask within a second
    const last = now.node === before?.node ? before : null; // counters of one node alone have a difference
    if (before && !last && performance.now() - shownAt < PATIENCE_MS) return;
    const of = (reading, id) => (Object.hasOwn(reading.models, id) ? reading.models[id] : ABSENT);
    const rate = (id) => {
      const counts = of(now, id).tokens - of(last ?? now, id).tokens;
      return counts > 0 ? Math.round(counts / (now.at - last.at)) : 0; // a counter begins anew with its node
    };
    rows = models.map(({ id }) => [id, of(now, id), rate(id)]);
    const total = rows.reduce((sum, [, , each]) => sum + each, 0);
    const waiting = rows.reduce((sum, [, model]) => sum + model.waiting, 0);
    past.push(total);
    if (past.length > KEPT) past.shift();
    told.textContent = `${counted(now.requests, "request")} in progress · ${total} tokens/s · ${waiting} waiting`;
    drawn.replaceChildren(curve(past));
    drawRows();
    before = now;
    shownAt = performance.now();
  }

  // What was read before is not so any more, and whoever answers next is believed.
  function fail(error) {
    told.textContent = `${wordsOf(error)}.`;
    drawn.replaceChildren();
    rows = [];
    drawRows();
    past.length = 0;
    before = null;
  }

  async function look() {
    let pause = EVERY_MS;
    try {
      if (!document.hidden && !isPaused) show(await get("live"));
    } catch (error) {
      if (!isPaused) fail(error);
      pause = Math.max((error.retryAfter ?? 0) * 1000, AFTER_ERROR_MS);
    }
    setTimeout(look, pause);
  }
  look();
}
