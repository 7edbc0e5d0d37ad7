// Entities, marked in their text.

import { post } from "../api.js";
import { characters, field, h, percent, reading, textarea } from "../dom.js";
import { makeScreen } from "../screen.js";

const TEXT = "Angela Merkel was born in Hamburg and studied physics in Leipzig.";

export function open(models) {
  const text = textarea(TEXT, 4, () => frame.wish());
  const found = h("div", { class: "panel" });
  let frame;

  function build(made) {
    frame = made;
    frame.clear = () => found.replaceChildren();
    return [field("Text", text), found];
  }

  async function ask(signal) {
    const input = text.value;
    if (!input.trim()) return frame.empty(found);
    const call = await post("tag", { model: frame.model.id, input }, signal);
    const [entities] = call.answer.results;
    found.replaceChildren(h("h2", {}, "Entities"), marked(input, entities), ...(entities.length ? [entityTable(input, entities)] : []));
    frame.told(call);
  }

  return makeScreen("Tag", models, { build, ask });
}

function marked(input, entities) {
  const all = characters(input);
  const shown = [];
  let at = 0;
  for (const { start, end, label } of entities) {
    if (start < at) continue;
    const own = all.slice(start, end).join("");
    shown.push(all.slice(at, start).join(""));
    // The label is drawn apart from the text; who copies or hears it has it in brackets.
    shown.push(h("mark", { "data-label": label }, own, h("span", { class: "heard" }, ` (${label})`)));
    at = end;
  }
  return reading("Entities", {}, shown, all.slice(at).join(""));
}

// The same as a table, with the scores.
function entityTable(input, entities) {
  const all = characters(input);
  const rows = entities.map(({ start, end, label, score }) =>
    h("tr", {}, [all.slice(start, end).join(""), label, percent(score)].map((cell) => h("td", { dir: "auto" }, cell))),
  );
  const head = h("tr", {}, ["Entity", "Label", "Score"].map((name) => h("th", { scope: "col" }, name)));
  return h(
    "details",
    { class: "more" },
    h("summary", {}, "As a table"),
    h("table", {}, h("thead", {}, head), h("tbody", {}, rows)),
  );
}
