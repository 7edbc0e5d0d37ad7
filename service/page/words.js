// A text in pieces: its tokens by the characters they stand for, with what stands between them.

import { characters, h, reading, rounded } from "./dom.js";

// The characters [start, end) that tokens stand for, with what these add. Tokens that share a character, such as the
// bytes of an emoji, are one: what is seen of them is the same.
function pieces(tokens, values) {
  const found = [];
  tokens.forEach(({ special, start, end }, index) => {
    if (special) return;
    const last = found.at(-1);
    if (last && start < last.end) {
      last.end = Math.max(last.end, end);
      last.value += values[index];
    } else found.push({ start, end, value: values[index] });
  });
  return found;
}

// A text whose tokens are coloured by what they add: for, in the screen's colour; against, in red.
export function contributions(text, tokens, values) {
  const all = characters(text);
  const found = pieces(tokens, values);
  const strongest = Math.max(...found.map(({ value }) => Math.abs(value)), 1e-9);
  const shown = [];
  let at = 0;
  for (const { start, end, value } of found) {
    const own = all.slice(start, end).join("");
    const spaces = own.length - own.trimStart().length;
    const colour = { class: value >= 0 ? "word for" : "word against", "--weight": Math.abs(value) / strongest };
    const title = `${Number(rounded(value)) > 0 ? "+" : ""}${rounded(value)}`;
    shown.push(all.slice(at, start).join(""), own.slice(0, spaces), h("span", { ...colour, title }, own.slice(spaces)));
    at = end;
  }
  return reading("What each token adds", {}, shown, all.slice(at).join(""));
}

// The same as a table, for who does not see colours; `what` is what they add to.
export function contributionTable(text, tokens, values, what) {
  const all = characters(text);
  const rows = pieces(tokens, values).map(({ start, end, value }) =>
    h("tr", {}, h("td", {}, all.slice(start, end).join("")), h("td", {}, rounded(value, 3))),
  );
  const head = h("tr", {}, h("th", { scope: "col" }, "Token"), h("th", { scope: "col" }, `Adds to the ${what}`));
  return h(
    "details",
    { class: "more" },
    h("summary", {}, "As numbers"),
    h("table", {}, h("thead", {}, head), h("tbody", {}, rows)),
  );
}
