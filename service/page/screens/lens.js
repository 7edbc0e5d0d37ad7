// What a model would have said if it ended behind each layer: the logit lens, a row for each token that came.

import { h, percent } from "../dom.js";
import { shown } from "../tokens.js";

export function lens(steps) {
  const layers = steps[0]?.depths.map((depth) => depth.layer) ?? [];
  const head = h(
    "tr",
    {},
    h("th", { scope: "col" }, "Token"),
    layers.map((layer) => h("th", { scope: "col" }, layer ? `Layer ${layer}` : "Embeddings")),
    h("th", { scope: "col" }, "Entropy"),
  );
  const table = h("table", { class: "lens" }, h("thead", {}, head), h("tbody", {}, steps.map(row)));
  return h(
    "div",
    { class: "panel" },
    h("h2", {}, "Layer by layer"),
    h("p", { class: "soft" }, "The likeliest token behind each layer, and how likely it is; outlined from where the answer stays the likeliest."),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The likeliest token behind each layer" }, table),
  );
}

function row({ text, depths, appears, entropy }) {
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, shown(text)),
    depths.map(({ layer, best }) => {
      const settled = appears !== undefined && layer >= appears;
      const share = h("small", {}, percent(best.probability));
      return h("td", { class: settled ? "settled" : null, "--weight": best.probability }, shown(best.text), " ", share);
    }),
    h("td", {}, entropy.toFixed(2)),
  );
}
