// A text in pieces: its tokens by the characters they stand for, with what stands between them.

import { characters, h } from "./dom.js";

// Calls `make(token, index, characters)` for each token of a text, and puts what it returns where the token stands.
export function pieces(text, tokens, make) {
  const all = characters(text);
  const found = [];
  let at = 0;
  tokens.forEach((token, index) => {
    if (token.special || token.start < at) return;
    if (token.start > at) found.push(all.slice(at, token.start).join(""));
    const own = all.slice(token.start, token.end).join("");
    const spaces = own.length - own.trimStart().length;
    if (spaces) found.push(own.slice(0, spaces));
    found.push(make(token, index, own.slice(spaces)));
    at = token.end;
  });
  return [...found, all.slice(at).join("")];
}

// A text whose tokens are coloured by what they add: for, in the screen's colour; against, in red.
export function contributions(text, tokens, values) {
  const strongest = Math.max(...values.map(Math.abs), 1e-9);
  const coloured = (_, index, own) => {
    const value = values[index];
    const told = `${value > 0 ? "+" : ""}${value.toFixed(2)}`;
    return h(
      "span",
      { class: value >= 0 ? "word for" : "word against", "--weight": Math.abs(value) / strongest, title: told },
      own,
    );
  };
  return h("p", { class: "reading", dir: "auto" }, pieces(text, tokens, coloured));
}

// The same as a table, for who does not see colours.
export function contributionTable(text, tokens, values) {
  const all = characters(text);
  const rows = tokens.flatMap((token, index) =>
    token.special
      ? []
      : [h("tr", {}, h("td", {}, all.slice(token.start, token.end).join("")), h("td", {}, values[index].toFixed(3)))],
  );
  const head = h("tr", {}, h("th", { scope: "col" }, "Token"), h("th", { scope: "col" }, "Adds to the log odds"));
  return h(
    "details",
    { class: "more" },
    h("summary", {}, "As numbers"),
    h("table", {}, h("thead", {}, head), h("tbody", {}, rows)),
  );
}
