// Answers to a question, marked in the text that holds them.

import { post } from "../api.js";
import { bars, characters, field, h, percent, reading, textarea } from "../dom.js";
import { makeScreen } from "../screen.js";

const QUESTION = "Where was she born?";
const CONTEXT = "Angela Merkel was born in Hamburg. She studied physics in Leipzig.";

const NONE = "No answer in this text";

export function open(models) {
  const question = h("input", { value: QUESTION, dir: "auto", oninput: () => frame.wish() });
  const context = textarea(CONTEXT, 6, () => frame.wish());
  const found = h("div", { class: "panel" });
  let frame;

  function build(made) {
    frame = made;
    frame.clear = () => found.replaceChildren();
    frame.fieldOf = (name) => ({ question, context })[name];
    return [field("Question", question), field("Text that holds the answer", context), frame.trouble, found];
  }

  async function ask(signal) {
    const text = context.value;
    if (!text.trim() || !question.value.trim()) return frame.empty(found);
    const body = { model: frame.model.id, question: question.value, context: text, top_k: 3 };
    const call = await post("answer", body, signal);
    const { answers, no_answer_score: none } = call.answer.results[0];
    const all = characters(text);
    const slice = (start, end) => all.slice(start, end).join("");
    const best = (answers[0]?.score ?? 0) > none ? answers[0] : null; // else the likeliest is that there is none
    const rows = answers.map(({ text: name, score }) => ({ name, share: score }));
    const marked = best
      ? [slice(0, best.start), h("mark", {}, slice(best.start, best.end)), slice(best.end)]
      : [text];
    found.replaceChildren(
      h("h2", {}, "Answers"),
      bars([...(best ? [] : [{ name: NONE, share: none }]), ...rows], { label: "Answers, best first", long: true }),
      reading("The answer in its place", {}, marked),
    );
    frame.told(best ? `${rows[0].name}, ${percent(best.score)}` : NONE, call);
  }

  return makeScreen("Answer", models, { build, ask });
}
