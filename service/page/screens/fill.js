// Candidates for missing words; choosing one puts it into the text.

import { post } from "../api.js";
import { bars, characters, field, h, samples, textarea } from "../dom.js";
import { makeScreen } from "../screen.js";

const TEXTS = ["The capital of France is [MASK].", "She opened the [MASK] and looked out."];

export function open(models) {
  const text = textarea(TEXTS[0], 3, () => frame.wish());
  const found = h("div", { class: "columns even" });
  let frame;

  function build(made) {
    frame = made;
    return [field("Text with [MASK] for each missing word", text), samples(TEXTS, text), found];
  }

  async function ask(signal) {
    const input = text.value;
    if (!input.trim()) return;
    const call = await post("fill", { model: frame.model.id, input, top_k: 8 }, signal);
    found.replaceChildren(...call.answer.results[0].map((mask, index) => candidates(input, mask, index)));
    frame.told(call);
  }

  function candidates(input, { start, end, candidates: words }, index) {
    const all = characters(input);
    const put = (word) => {
      text.value = [...all.slice(0, start), word.trim(), ...all.slice(end)].join("");
      text.focus();
    };
    const rows = words.map(({ text: name, score }) => ({ name, share: score }));
    const label = `Candidates for missing word ${index + 1}`;
    return h("div", { class: "panel" }, h("h2", {}, label), bars(rows, { label, onchoose: put }));
  }

  return makeScreen("Fill", models, { build, ask });
}
