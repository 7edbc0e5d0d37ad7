// One word in several contexts: a vector for each, which are near one another where the word means the same.

import { latest, post, wordsOf } from "../api.js";
import { button, characters, counted, field, h, linesOf, rounded, textarea } from "../dom.js";
import { cosine, halves } from "../maths.js";

const WORD = "bank";
const LINES = [
  "He sat on the bank of the river.",
  "They walked along the river bank.",
  "She opened a bank account.",
  "The bank gave him a loan.",
];

// Scripts whose words stand without spaces: a word of theirs has letters beside it.
const SPACELESS = /[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmr}\p{sc=Mymr}]/u;
const INSIDE_WORD = "[\\p{L}\\p{M}\\p{N}]";

// What finds a word in a text, in upper case and lower, but not as a part of another word.
function finder(word) {
  const literal = word.replace(/[\^$\\.*+?()[\]{}|/]/g, "\\$&");
  return new RegExp(SPACELESS.test(word) ? literal : `(?<!${INSIDE_WORD})${literal}(?!${INSIDE_WORD})`, "iu");
}

export function contexts(model) {
  const word = h("input", { value: WORD, dir: "auto" });
  const lines = textarea(LINES.join("\n"), 5);
  const found = h("div", {});
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const { wish, end } = latest(run, (error) => {
    problem.textContent = wordsOf(error);
    problem.hidden = false;
  });
  const compare = button("Compare", () => wish(0));
  const element = h(
    "details",
    { class: "more panel", ontoggle: () => element.open && wish(0) },
    h("summary", {}, "One word, two meanings"),
    h("div", { class: "fields" }, field("Word", word), field("Sentences with it, one a line", lines)),
    compare,
    problem,
    found,
  );

  function empty() {
    problem.hidden = true;
    found.replaceChildren();
  }

  function clear() {
    end();
    empty();
    element.open = false;
  }

  async function run(signal) {
    empty();
    const all = linesOf(lines.value);
    const wanted = word.value.trim();
    const places = wanted ? all.map((text) => finder(wanted).exec(text)).filter(Boolean) : [];
    if (!places.length) {
      found.replaceChildren(h("p", { class: "soft" }, "No sentence has this word."));
      return;
    }
    const vectors = await Promise.all(places.map((place) => vectorOf(place, model().id, signal)));
    found.replaceChildren(...leftOut(all.length - places.length), matrix(places.map(({ input }) => input), vectors));
  }

  return { element, clear };
}

const leftOut = (count) =>
  count ? [h("p", { class: "soft" }, `${counted(count, "sentence")} without this word ${count === 1 ? "is" : "are"} left out.`)] : [];

function matrix(texts, vectors) {
  const head = h("tr", {}, h("td", {}), texts.map((_, number) => h("th", { scope: "col" }, String(number + 1))));
  const rows = texts.map((text, i) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, `${i + 1} ${text}`),
      vectors.map((other) => {
        const near = cosine(vectors[i], other);
        return h("td", { "--weight": Math.max(0, near) }, rounded(near));
      }),
    ),
  );
  const table = h("table", { class: "matrix" }, h("thead", {}, head), h("tbody", {}, rows));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Cosines of the word's vectors" }, table);
}

// The mean of a word's tokens behind the last layer; the word is where it was found.
async function vectorOf({ input, index: at, 0: word }, model, signal) {
  const body = { model, input, vectors: true, attention: false, contributions: false, encoding: "base64" };
  const { answer } = await post("explain", body, signal);
  const found = answer.vectors.encoder ?? answer.vectors.decoder;
  const [layers, tokens, width] = found.shape;
  const data = halves(found.values);
  const start = characters(input.slice(0, at)).length;
  const end = start + characters(word).length;
  const own = answer.tokens.flatMap((token, index) => (!token.special && token.end > start && token.start < end ? [index] : []));
  const sum = new Array(width).fill(0);
  for (const index of own) {
    const from = ((layers - 1) * tokens + index) * width;
    for (let axis = 0; axis < width; axis += 1) sum[axis] += data[from + axis];
  }
  return sum;
}
