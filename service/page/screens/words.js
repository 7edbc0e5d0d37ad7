// The words that two texts are about, and what they have in common.

import { post } from "../api.js";
import { bars, field, h, textarea } from "../dom.js";
import { makeScreen } from "../screen.js";

const TEXTS = ["How long does it take to fly to the moon?", "The rocket reached lunar orbit after three days."];
const HEAVIEST = 16; // words that are shown of a text

export function open(models) {
  const texts = TEXTS.map((text) => textarea(text, 3, () => frame.wish()));
  const found = h("div", { class: "columns even" });
  let frame;

  function build(made) {
    frame = made;
    frame.clear = () => found.replaceChildren();
    return [field("Text", texts[0]), field("Another text", texts[1]), found];
  }

  async function ask(signal) {
    const input = texts.map((text) => text.value).filter((text) => text.trim());
    if (!input.length) return frame.empty(found);
    const call = await post("embed_sparse", { model: frame.model.id, input, return_tokens: true }, signal);
    const weights = call.answer.embeddings.map(({ tokens, values }) => new Map(tokens.map((word, at) => [word, values[at]])));
    const panels = weights.map((each, number) => panel(`Words of text ${number + 1}`, each));
    if (weights.length > 1) panels.push(panel("In common", products(...weights)));
    found.replaceChildren(...panels);
    frame.told(call);
  }

  return makeScreen("Words", models, { build, ask });
}

function products(first, second) {
  const shared = [...first].filter(([word]) => second.has(word));
  return new Map(shared.map(([word, weight]) => [word, weight * second.get(word)]));
}

function panel(title, weights) {
  const words = [...weights].sort((one, other) => other[1] - one[1]).slice(0, HEAVIEST);
  const most = words.length ? words[0][1] : 1;
  const rows = words.map(([name, weight]) => ({ name, share: weight / most, told: weight.toFixed(2) }));
  const sum = [...weights.values()].reduce((all, weight) => all + weight, 0).toFixed(1);
  const note = `${weights.size} words, ${sum} together`;
  return h("div", { class: "panel" }, h("h2", {}, title), h("p", {}, note), bars(rows, { label: title }));
}
