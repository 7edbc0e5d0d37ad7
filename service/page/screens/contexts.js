// One word in several contexts: a vector for each, which are near one another where the word means the same.

import { latest, post } from "../api.js";
import { characters, field, h, textarea } from "../dom.js";
import { cosine, halves } from "../maths.js";

const WORD = "bank";
const LINES = [
  "He sat on the bank of the river.",
  "They walked along the river bank.",
  "She opened a bank account.",
  "The bank gave him a loan.",
];

export function contexts(model, onerror) {
  const word = h("input", { value: WORD, dir: "auto" });
  const lines = textarea(LINES.join("\n"), 5);
  const found = h("div", {});
  const wish = latest(run, onerror);
  const compare = h("button", { type: "button", onclick: () => wish(0) }, "Compare");
  return h(
    "details",
    { class: "more panel", ontoggle: (event) => event.target.open && wish(0) },
    h("summary", {}, "One word, two meanings"),
    h("div", { class: "fields" }, field("Word", word), field("Sentences with it, one a line", lines)),
    compare,
    found,
  );

  async function run(signal) {
    const texts = lines.value.split("\n").map((line) => line.trim()).filter((line) => word.value.trim() && line.includes(word.value));
    if (!texts.length) {
      found.replaceChildren(h("p", { class: "soft" }, "No sentence has this word."));
      return;
    }
    const vectors = await Promise.all(texts.map((text) => vectorOf(text, word.value, model().id, signal)));
    const head = h("tr", {}, h("td", {}), texts.map((_, number) => h("th", { scope: "col" }, String(number + 1))));
    const rows = texts.map((text, i) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, `${i + 1} ${text}`),
        vectors.map((other) => {
          const near = cosine(vectors[i], other);
          return h("td", { "--weight": Math.max(0, near) }, near.toFixed(2));
        }),
      ),
    );
    const table = h("table", { class: "matrix" }, h("thead", {}, head), h("tbody", {}, rows));
    found.replaceChildren(h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Cosines of the word's vectors" }, table));
  }
}

// The mean of a word's tokens behind the last layer.
async function vectorOf(input, word, model, signal) {
  const body = { model, input, vectors: true, attention: false, contributions: false, encoding: "base64" };
  const { answer } = await post("explain", body, signal);
  const found = answer.vectors.encoder ?? answer.vectors.decoder;
  const [layers, tokens, width] = found.shape;
  const data = halves(found.values);
  const start = characters(input.slice(0, input.indexOf(word))).length;
  const end = start + characters(word).length;
  const own = answer.tokens.flatMap((token, index) => (!token.special && token.end > start && token.start < end ? [index] : []));
  const sum = new Array(width).fill(0);
  for (const index of own) {
    const from = ((layers - 1) * tokens + index) * width;
    for (let at = 0; at < width; at += 1) sum[at] += data[from + at];
  }
  return sum;
}
