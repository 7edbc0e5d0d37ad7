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
    frame.fieldOf = (name, _, words) => (name === "input" ? blamed(words) : null);
    return [field("Text", texts[0]), field("Another text", texts[1]), frame.trouble, found];
  }

  const given = () => texts.filter((text) => text.value.trim());

  // The text that a refusal is of, by its number among those that were sent.
  const blamed = (words) => given()[Number(/in text (\d+) of/.exec(words)?.[1] ?? 1) - 1];

  async function ask(signal) {
    const input = given().map((text) => text.value);
    if (!input.length) return frame.empty(found);
    const call = await post("embed_sparse", { model: frame.model.id, input, return_tokens: true }, signal);
    const words = call.answer.embeddings.map(wordsOf);
    const panels = words.map((each, number) => panel(`Words of text ${number + 1}`, each));
    if (words.length > 1) panels.push(panel("In common", products(...words)));
    found.replaceChildren(...panels);
    const first = (each) => heaviestOf(each).slice(0, 3).map(({ name }) => name).join(", ");
    frame.told(`Heaviest: ${words.map(first).join("; ")}`, call);
  }

  return makeScreen("Words", models, { build, ask });
}

const wordsOf = ({ indices, values, tokens }) =>
  indices.map((id, at) => ({ id, weight: values[at], name: tokens[at] || `(${id})` }));

function products(first, second) {
  const weights = new Map(second.map(({ id, weight }) => [id, weight]));
  return first
    .filter(({ id }) => weights.has(id))
    .map((word) => ({ ...word, weight: word.weight * weights.get(word.id) }));
}

const heaviestOf = (words) => words.toSorted((one, other) => other.weight - one.weight);

function panel(title, words) {
  const heaviest = heaviestOf(words).slice(0, HEAVIEST);
  const rows = heaviest.map(({ name, weight }) => ({
    name,
    share: weight / heaviest[0].weight,
    told: weight.toFixed(2),
  }));
  const sum = words.reduce((all, { weight }) => all + weight, 0).toFixed(1);
  const note = `${words.length} words, ${sum} together`;
  return h("div", { class: "panel" }, h("h2", {}, title), h("p", {}, note), bars(rows, { label: title }));
}
