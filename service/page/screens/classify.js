// Labels of a text as bars, and what each word adds to one of them; or labels of a picture.

import { post, wordsOf } from "../api.js";
import { bars, field, h, percent, rounded, samples, textarea } from "../dom.js";
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
// For the labels that stand there at first.
const OWN = [
  "The goalkeeper saved a penalty in the last minute.",
  "Parliament votes on the new budget on Friday.",
  "Heavy rain and strong winds are expected tonight.",
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
  let said = ""; // of the newest answer

  function build(made) {
    frame = made;
    frame.onmodel = () => {
      label = null;
      image.onmodel();
      const examples = TEXTS.get(frame.model.id) ?? (frame.model.zero_shot ? OWN : ANY);
      const known = [...TEXTS.values(), ANY, OWN].flat();
      if (!text.value || known.includes(text.value)) text.value = examples[0];
      inputs.replaceChildren(
        ...(frame.model.image_size
          ? [image.element]
          : [field("Text", text), samples(examples, text), ...(frame.model.zero_shot ? [labels] : [])]),
      );
    };
    frame.fieldOf = (name) => (name === "labels" ? own : name === "input" && !frame.model.image_size ? text : null);
    frame.clear = () => [found, words].forEach((each) => each.replaceChildren());
    return [inputs, frame.trouble, h("div", { class: "columns" }, found, words)];
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
      ...(explains(model) ? [h("p", { class: "soft" }, "Choose a label to see what speaks for it.")] : []),
    );
    [...found.querySelectorAll("button")].find((each) => each.textContent === held)?.focus(); // where it was
    const [best] = results;
    said = best && `${best.label}, ${model.activation === "none" ? rounded(best.score) : percent(best.score)}`;
    frame.told(said, call);
    if (!explains(model)) return;
    if (call.answer.usage.prompt_tokens <= model.max_input_tokens) await explain(call, input, signal);
    else unexplained("This text is read in windows, for which words are not explained. Make it shorter to see what speaks for a label.");
  }

  const unexplained = (why) => words.replaceChildren(h("h2", {}, "Words"), h("p", { class: "soft" }, why));

  const explains = (model) => !model.image_size && !model.zero_shot;

  async function explain(call, input, signal) {
    words.setAttribute("aria-busy", "true"); // what stands there is of the text before
    const body = { model: frame.model.id, input, attention: false, contributions: true, ...(label && { label }) };
    const why = await post("explain", body, signal)
      .catch((error) => {
        if (signal.aborted) throw error;
        const why = wordsOf(error);
        unexplained(error.param === "input" ? `This text is too long to see what each word adds: ${why}.` : why);
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
    frame.told(said, call, why);
  }

  return makeScreen("Classify", models, { build, ask });
}
