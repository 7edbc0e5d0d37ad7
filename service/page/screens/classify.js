// Labels of a text as bars, and what each word adds to one of them; or labels of a picture.

import { post, wordsOf } from "../api.js";
import { bars, field, h, rounded, samples, textarea } from "../dom.js";
import { makeScreen, needsWindows } from "../screen.js";
import { contributions, contributionTable } from "../words.js";
import { picture } from "./picture.js";

// By the model's name, which may be any word.
const TEXTS = new Map([
  ["spam", ["WINNER!! Claim your free prize now, text WIN to 80082", "Running late, see you at eight?"]],
  [
    "topics",
    [
      "The Volvo 240 is a car that was made by Volvo Cars from 1974 to 1993.",
      "Quercus robur, the pedunculate oak, is a tree native to most of Europe.",
    ],
  ],
]);
const ANY = [
  "A warm, funny film with a wonderful cast.",
  "The plot is thin, but the actors save it.",
  "Two hours of my life that I will never get back.",
];
const MOST = 20; // labels that are drawn; the answer has them all

export function open(models) {
  const text = textarea("", 3, () => frame.wish());
  const image = picture(() => frame.wish(0));
  const own = h("input", { value: "sport, politics, weather", oninput: () => frame.wish() });
  const labels = field("Labels of your own, between commas", own);
  const inputs = h("div", {});
  const found = h("div", { class: "panel" });
  const words = h("div", { class: "panel" });
  let frame;
  let label = null;

  function build(made) {
    frame = made;
    frame.onmodel = () => {
      label = null;
      const examples = TEXTS.get(frame.model.id) ?? ANY;
      const known = [...TEXTS.values(), ANY].flat();
      if (!text.value || known.includes(text.value)) text.value = examples[0];
      inputs.replaceChildren(
        ...(frame.model.image_size
          ? [image.element]
          : [field("Text", text), samples(examples, text), ...(frame.model.zero_shot ? [labels] : [])]),
      );
    };
    frame.clear = () => [found, words].forEach((each) => each.replaceChildren());
    return [inputs, h("div", { class: "columns" }, found, words)];
  }

  async function ask(signal) {
    const { model } = frame;
    const input = model.image_size ? image.data() : text.value;
    if (!input.trim()) return frame.empty(found, words);
    const body = { model: model.id, input };
    if (model.zero_shot) body.labels = own.value.split(",").map((each) => each.trim()).filter(Boolean);
    if (!model.image_size && needsWindows(input, model)) body.windows = true;
    const call = await post("classify", body, signal);
    const results = call.answer.results[0].labels;
    const most = Math.max(...results.map(({ score }) => Math.abs(score)), 1e-9);
    const row = ({ label: name, score }) =>
      model.activation === "none" // any number then, not a share
        ? { name, share: score / most, told: rounded(score) }
        : { name, share: score };
    const choose = (name) => {
      label = name;
      frame.wish(0);
    };
    const drawn = results.filter((each, place) => place < MOST || each.label === label);
    const left = results.length - drawn.length;
    const held = found.contains(document.activeElement) ? document.activeElement.textContent : null;
    found.replaceChildren(
      h("h2", {}, "Labels"),
      bars(
        drawn.map(row),
        { label: "Labels with their scores", chosen: label ?? results[0].label, onchoose: explains(model) && choose },
      ),
      ...(left ? [h("p", { class: "soft" }, `and ${left} more`)] : []),
    );
    [...found.querySelectorAll("button")].find((each) => each.textContent === held)?.focus(); // where it was
    frame.told(call);
    if (explains(model)) await explain(call, input, signal);
  }

  const explains = (model) => !model.image_size && !model.zero_shot;

  async function explain(call, input, signal) {
    words.setAttribute("aria-busy", "true"); // what stands there is of the text before
    const body = { model: frame.model.id, input, attention: false, contributions: true, ...(label && { label }) };
    const why = await post("explain", body, signal)
      .catch((error) => {
        if (signal.aborted) throw error;
        words.replaceChildren(h("h2", {}, "Words"), h("p", { class: "soft" }, wordsOf(error)));
        return null;
      })
      .finally(() => words.removeAttribute("aria-busy"));
    if (!why) return;
    const { contributions: of, tokens } = why.answer;
    const what = frame.model.activation === "none" ? "score" : "log odds"; // a score that is no share has none
    words.replaceChildren(
      h("h2", {}, "What speaks for “", of.label, "”"),
      contributions(input, tokens, of.values),
      h("p", { class: "legend" }, h("span", { class: "word for", "--weight": 1 }, "for it"), " ", h("span", { class: "word against", "--weight": 1 }, "against it"), " Shapley values of the ", what),
      contributionTable(input, tokens, of.values, what),
    );
    frame.told(call, why);
  }

  return makeScreen("Classify", models, { build, ask });
}
