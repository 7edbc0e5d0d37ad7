// Candidates for missing words; choosing one puts it into the text.

import { post } from "../api.js";
import { bars, characters, field, h, percent, samples, textarea } from "../dom.js";
import { makeScreen } from "../screen.js";

const TEXTS = ["The capital of France is [MASK].", "She opened the [MASK] and looked out."];

export function open(models) {
  const text = textarea(TEXTS[0], 3, () => frame.wish());
  const found = h("div", { class: "columns even" });
  let frame;

  function build(made) {
    frame = made;
    frame.clear = () => found.replaceChildren();
    frame.fieldOf = (name) => (name === "input" ? text : null);
    return [field("Text with [MASK] for each missing word", text), samples(TEXTS, text), frame.trouble, found];
  }

  async function ask(signal) {
    const input = text.value;
    if (!input.trim()) return frame.empty(found);
    const call = await post("fill", { model: frame.model.id, input, top_k: 8 }, signal);
    const masks = call.answer.results[0];
    const chosen = new Map(); // by the mask's place
    let last = input;
    const choose = (index, word) => {
      if (text.value !== last) return frame.wish(0); // it is another text by now
      chosen.set(index, word);
      text.value = last = filled(input, masks, chosen);
      for (const each of found.children[index].querySelectorAll("button")) {
        each.setAttribute("aria-pressed", String(each.textContent === word));
      }
    };
    found.replaceChildren(...masks.map((mask, index) => candidates(mask, index, (word) => choose(index, word))));
    frame.told(masks.map(({ candidates: [best] }) => `${best.text}, ${percent(best.score)}`).join("; "), call);
  }

  function candidates({ candidates: words }, index, onchoose) {
    const rows = words.map(({ text: name, score }) => ({ name, share: score }));
    const label = `Candidates for missing word ${index + 1}`;
    return h("div", { class: "panel" }, h("h2", {}, label), bars(rows, { label, onchoose }));
  }

  return makeScreen("Fill", models, { build, ask });
}

// The text with the words that were chosen; "##ing" goes on the word before it.
function filled(input, masks, chosen) {
  const all = characters(input);
  let [text, at] = ["", 0];
  masks.forEach(({ start, end }, index) => {
    text += all.slice(at, start).join("");
    const word = chosen.get(index) ?? all.slice(start, end).join("");
    text = word.startsWith("##") ? text.trimEnd() + word.slice(2) : text + word.trim();
    at = end;
  });
  return text + all.slice(at).join("");
}
