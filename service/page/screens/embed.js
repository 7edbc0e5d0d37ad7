// Lines of text: which of them are near one another, as a matrix of cosines and as a map.

import { post } from "../api.js";
import { field, h, linesOf, rounded, svg, textarea } from "../dom.js";
import { cosine, twoAxes } from "../maths.js";
import { makeScreen, needsWindows } from "../screen.js";

const LINES = [
  "A man is playing a guitar.",
  "Someone plays music on an instrument.",
  "The dog runs through the park.",
  "A puppy is running outside.",
  "The stock market fell sharply today.",
  "Shares lost value in trading.",
];
const MOST = 40;

export function open(models) {
  const text = textarea(LINES.join("\n"), 7, () => frame.wish());
  const map = h("div", { class: "panel" });
  const matrix = h("div", { class: "panel wide" });
  let frame;

  function build(made) {
    frame = made;
    frame.clear = () => [map, matrix].forEach((each) => each.replaceChildren());
    frame.fieldOf = (name) => (name === "input" ? text : null);
    return [field("Texts, one a line", text), frame.trouble, h("div", { class: "columns even" }, map, matrix)];
  }

  async function ask(signal) {
    const lines = linesOf(text.value);
    const input = lines.slice(0, MOST);
    if (!input.length) return frame.empty(map, matrix);
    const body = { model: frame.model.id, input };
    if (input.some((line) => needsWindows(line, frame.model))) body.windows = true;
    const call = await post("embed", body, signal);
    const vectors = call.answer.embeddings;
    const of = lines.length > MOST ? `, of the first ${MOST} of ${lines.length} texts` : "";
    map.replaceChildren(h("h2", {}, `Map of nearness${of}`), ...drawMap(input, vectors));
    const single = h("p", { class: "soft" }, "Write a second line to see how near the two are.");
    matrix.replaceChildren(h("h2", {}, "Similarity"), input.length > 1 ? drawMatrix(input, vectors) : single);
    frame.told(nearest(vectors), call);
  }

  return makeScreen("Embed", models, { build, ask });
}

// The two texts that are nearest one another, for who hears it.
function nearest(vectors) {
  const pairs = vectors.flatMap((one, i) =>
    vectors.slice(0, i).map((other, j) => ({ i: j, j: i, near: cosine(one, other) })),
  );
  if (!pairs.length) return "";
  const { i, j, near } = pairs.reduce((best, each) => (each.near > best.near ? each : best));
  return `Texts ${i + 1} and ${j + 1} are nearest, with ${rounded(near)}`;
}

const mark = (number, on) =>
  document.querySelectorAll(`[data-line="${number}"]`).forEach((each) => each.classList.toggle("marked", on));
const hover = (number) => ({
  "data-line": number,
  onmouseenter: () => mark(number, true),
  onmouseleave: () => mark(number, false),
});

function drawMap(input, vectors) {
  const places = vectors.length > 1 ? twoAxes(vectors) : [[0, 0]];
  const widest = Math.max(...places.flat().map(Math.abs), 1e-9);
  const at = places.map(([x, y]) => [160 + (x / widest) * 140, 120 - (y / widest) * 100]);
  const dots = at.map(([x, y], number) =>
    svg(
      "g",
      { class: "dot", ...hover(number), transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` },
      svg("title", {}, input[number]),
      svg("circle", { r: 10 }),
      svg("text", { "text-anchor": "middle", dy: "0.35em" }, String(number + 1)),
    ),
  );
  const label = "The texts on the two axes along which their vectors differ most";
  return [
    svg("svg", { viewBox: "0 0 320 240", class: "map", role: "img", "aria-label": label }, dots),
    h("ol", { class: "lines" }, input.map((line, number) => h("li", { dir: "auto", ...hover(number) }, line))),
  ];
}

function drawMatrix(input, vectors) {
  const numbers = input.map((_, index) => index);
  const head = h(
    "tr",
    {},
    h("td", {}),
    numbers.map((number) => h("th", { scope: "col", ...hover(number) }, String(number + 1))),
  );
  const rows = numbers.map((i) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", ...hover(i) }, String(i + 1)),
      numbers.map((j) => {
        const near = cosine(vectors[i], vectors[j]);
        return h("td", { "--weight": Math.max(0, near), title: `${input[i]} – ${input[j]}` }, rounded(near));
      }),
    ),
  );
  const table = h("table", { class: "matrix" }, h("thead", {}, head), h("tbody", {}, rows));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Cosines of all pairs" }, table);
}
