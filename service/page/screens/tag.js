// Entities, marked in their text.

import { post } from "../api.js";
import { characters, field, h, percent, textarea } from "../dom.js";
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
    found.replaceChildren(h("h2", {}, "Entities"), marked(input, call.answer.results[0]));
    frame.told(call);
  }

  return makeScreen("Tag", models, { build, ask });
}

function marked(input, entities) {
  const all = characters(input);
  const shown = [];
  let at = 0;
  for (const { start, end, label, score } of entities) {
    if (start < at) continue;
    const own = all.slice(start, end).join("");
    shown.push(all.slice(at, start).join(""));
    shown.push(h("mark", { title: percent(score) }, own, h("small", {}, label)));
    at = end;
  }
  return h("p", { class: "reading", dir: "auto" }, shown, all.slice(at).join(""));
}
