// Entities, marked in their text.

import { post } from "../api.js";
import { characters, field, h, percent, reading, textarea } from "../dom.js";
import { makeScreen } from "../screen.js";

const TEXT = "Angela Merkel was born in Hamburg and studied physics in Leipzig.";

// Of the labels that most models have.
const MEANINGS = new Map([
  ["PER", "people"],
  ["ORG", "organisations"],
  ["LOC", "places"],
  ["MISC", "other names"],
]);

// Labels of no entity: outside of all, or with which some trainers fill rows up.
const NONE = new Set(["O", "X", "[PAD]", "<pad>", "[CLS]", "[SEP]", "<s>", "</s>", "[START]", "[END]"]);

// What a model marks. A letter and a dash tell where in an entity a word stands: B and I always, the others only where all
// labels have such a letter, for a kind may be called "E-mail". The service reads labels in the same way.
function kindsOf({ labels }) {
  const names = labels.filter((label) => !NONE.has(label));
  const scheme = names.every((label) => /^[BIEMSLUbi]-./.test(label)) ? /^[BIEMSLUbi]-(?=.)/ : /^[BIbi]-(?=.)/;
  const kinds = new Set(names.map((label) => label.replace(scheme, "")));
  return [...kinds].map((kind) => (MEANINGS.has(kind) ? `${MEANINGS.get(kind)} (${kind})` : kind)).join(", ");
}

export function open(models) {
  const text = textarea(TEXT, 4, () => frame.wish());
  const found = h("div", { class: "panel" });
  let frame;

  function build(made) {
    frame = made;
    frame.clear = () => found.replaceChildren();
    frame.fieldOf = (name) => (name === "input" ? text : null);
    return [field("Text", text), frame.trouble, found];
  }

  async function ask(signal) {
    const input = text.value;
    if (!input.trim()) return frame.empty(found);
    const call = await post("tag", { model: frame.model.id, input }, signal);
    const [entities] = call.answer.results;
    found.replaceChildren(
      h("h2", {}, "Entities"),
      marked(input, entities),
      h("p", { class: "legend" }, entities.length ? "" : "Nothing was found in this text. ", `This model marks ${kindsOf(frame.model)}.`),
      ...(entities.length ? [entityTable(input, entities)] : []),
    );
    frame.told(entities.map(({ text: own, label }) => `${own} (${label})`).join(", ") || "Nothing was found", call);
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
