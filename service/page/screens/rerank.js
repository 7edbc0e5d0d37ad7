// Documents, sorted by how well they fit a query.

import { post } from "../api.js";
import { bars, field, h, linesOf, textarea } from "../dom.js";
import { makeScreen } from "../screen.js";

const QUERY = "Who plays music?";
const DOCUMENTS = [
  "The dog runs through the park.",
  "A man is playing a guitar.",
  "Shares lost value in trading.",
  "An orchestra gave a concert in the square.",
];
const NEARLY_NOTHING = 1e-3; // of which fewer places would show nothing

// A score with three digits or decimals, of whatever size it is: a cosine, a share, or any number.
function digits(score) {
  const size = Math.abs(score);
  if (size && size < NEARLY_NOTHING) return score.toExponential(2);
  return size < 1 ? score.toPrecision(3) : score.toFixed(3);
}

export function open(models) {
  const query = h("input", { value: QUERY, dir: "auto", oninput: () => frame.wish() });
  const documents = textarea(DOCUMENTS.join("\n"), 6, () => frame.wish());
  const found = h("div", { class: "panel" });
  let frame;

  function build(made) {
    frame = made;
    frame.clear = () => found.replaceChildren();
    frame.fieldOf = (name) => ({ query, documents })[name];
    return [field("Query", query), field("Documents, one a line", documents), frame.trouble, found];
  }

  async function ask(signal) {
    const lines = linesOf(documents.value);
    if (!lines.length || !query.value.trim()) return frame.empty(found);
    const call = await post("rerank", { model: frame.model.id, query: query.value, documents: lines }, signal);
    const { results } = call.answer;
    const top = Math.max(...results.map((each) => each.relevance_score), 1e-9);
    const rows = results.map(({ index, relevance_score: score }) => ({
      name: lines[index],
      share: score / Math.max(top, 1),
      told: digits(score),
    }));
    found.replaceChildren(h("h2", {}, "Best first"), bars(rows, { label: "Documents, best first", long: true }));
    frame.told(`Best: ${rows[0].name}`, call);
  }

  return makeScreen("Rerank", models, { build, ask });
}
