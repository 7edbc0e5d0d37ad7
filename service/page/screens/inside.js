// Inside a model while it runs: its attention, its tokens, what each layer would have said, one word in many contexts.

import { post } from "../api.js";
import { attentionView } from "../attention.js";
import { characters, field, h, offer, textarea } from "../dom.js";
import { called, goalsOf, isSample, sampleIn, sourceChoice } from "../languages.js";
import { makeScreen } from "../screen.js";
import { shown } from "../tokens.js";
import { contexts } from "./contexts.js";
import { lens } from "./lens.js";

const TEXTS = {
  classify: "A warm, funny film with a wonderful cast.",
  embed: "He sat on the bank of the river.",
  embed_sparse: "He sat on the bank of the river.",
  generate: "Once upon a time there was a little",
};
const isOurs = (text) => isSample(text) || Object.values(TEXTS).includes(text);
const PARTS = {
  encoder: "Within the text",
  decoder: "Within what was said",
  cross: "From the output to the source",
};

export function open(models) {
  const text = textarea("", 2, () => frame.wish(500));
  const source = h("select", { onchange: () => sourceChanged() });
  const sourceField = field("From", source, { class: "field picker" });
  const target = h("select", { onchange: () => frame.wish(0) });
  const targetField = field("Into", target, { class: "field picker" });
  const part = h("select", { onchange: () => drawAttention() });
  const partField = field("Attention", part, { class: "field picker" });
  const facts = h("dl", { class: "facts" });
  const few = h("p", { class: "soft", "aria-live": "polite" });
  const attention = h("div", {});
  const more = h("div", {});
  let frame;
  let answer = null;
  let asked = "";

  function build(made) {
    frame = made;
    const words = contexts(() => frame.model);
    frame.clear = () => {
      answer = null;
      for (const each of [facts, attention, more]) each.replaceChildren();
    };
    frame.onmodel = () => {
      const { task } = frame.model;
      const translates = task === "translate";
      sourceField.hidden = targetField.hidden = !translates;
      if (translates) {
        offer(source, ...sourceChoice(frame.model));
        sourceChanged();
      } else if (isOurs(text.value)) text.value = TEXTS[task] ?? TEXTS.classify;
      words.element.hidden = ["generate", "translate"].includes(task);
      words.clear(); // what it shows is another model's
    };
    frame.fieldOf = (name) => ({ input: text, source, target })[name];
    return [field("Text", text), h("div", { class: "row" }, sourceField, targetField, partField), frame.trouble, facts, few, attention, more, words.element];
  }

  function sourceChanged() {
    if (source.value !== "auto" && isOurs(text.value)) text.value = sampleIn(source.value);
    const goals = goalsOf(frame.model, source.value);
    offer(target, goals.map((each) => [each, called(each)]), goals.includes(target.value) ? target.value : goals[0]);
    frame.wish(0);
  }

  async function ask(signal) {
    const { id, task } = frame.model;
    const input = text.value;
    if (!input.trim()) {
      frame.clear();
      partField.hidden = true;
      return frame.empty();
    }
    const body = { model: id, input, encoding: "base64", contributions: false };
    if (task === "translate") Object.assign(body, { source: source.value, target: target.value, alignment: false });
    if (task === "generate") body.max_tokens = 8;
    const { call, layers } = await explained(body, signal);
    [answer, asked] = [call.answer, input]; // together: what is drawn anew is of both
    const kinds = Object.keys(PARTS).filter((kind) => answer.attention?.[kind]);
    const kept = kinds.includes(part.value) ? part.value : kinds.at(-1);
    offer(part, kinds.map((kind) => [kind, PARTS[kind]]), kept);
    partField.hidden = kinds.length < 2;
    facts.replaceChildren(...shapes(frame.model, answer));
    few.textContent = layers ? `Of so long a text the attention of ${layers} layers is shown.` : "";
    drawAttention();
    more.replaceChildren(...(answer.steps ? [lens(answer.steps)] : []), tokenTable(asked, answer));
    frame.told(answer.output ? `It goes on: ${answer.output}` : "", call);
  }

  // Of a long text as many layers as may be asked for, evenly spread.
  async function explained(body, signal) {
    const { num_encoder_layers: encoder, num_decoder_layers: decoder } = frame.model.sizes;
    const most = Math.max(encoder, decoder);
    for (let every = 1; ; every *= 2) {
      const layers = Array.from({ length: most }, (_, layer) => layer).filter((layer) => (most - 1 - layer) % every === 0);
      try {
        const call = await post("explain", every === 1 ? body : { ...body, layers }, signal);
        return { call, layers: every === 1 ? "" : `${layers.length} of ${most}` };
      } catch (error) {
        if (error.param !== "attention" || layers.length === 1) throw error;
      }
    }
  }

  function drawAttention() {
    const maps = answer?.attention?.[part.value];
    if (!maps) return;
    const source = textsOf(answer.tokens, asked);
    const output = textsOf(answer.output_tokens ?? [], answer.output ?? "");
    const whole = part.value === "decoder" && !answer.attention.cross ? [...source, ...output] : output;
    const looking = part.value === "encoder" ? source : whole;
    const seen = part.value === "decoder" ? whole : source;
    const view = attentionView(maps, looking, seen);
    attention.replaceChildren(view.element);
    view.drawAll();
  }

  return makeScreen("Inside", models, { build, ask });
}

function textsOf(tokens, text) {
  const all = characters(text);
  return tokens.map((token) => (token.special ? token.token : shown(all.slice(token.start, token.end).join("").trim() || token.token)));
}

function shapes({ sizes, precision, max_positions: positions, max_input_tokens: most, dimensions }, { tokens, output_tokens: output }) {
  const { num_encoder_layers: encoder, num_decoder_layers: decoder, num_heads: heads, num_kv_heads: shared } = sizes;
  const layers = [[encoder, "encoder"], [decoder, "decoder"]].filter(([count]) => count);
  const rows = [
    ["Parameters", sizes.parameters?.toLocaleString("en")],
    ["Layers", layers.map(([count, kind]) => `${count} ${kind}`).join(" + ")],
    ["Heads", `${heads} × ${sizes.head_dim}${shared < heads ? `, ${shared} of keys and values` : ""}`],
    ["Feed-forward", `${sizes.d_model} → ${sizes.d_ff} → ${sizes.d_model}`],
    ["Hidden states", `${output ? `(${tokens.length} + ${output.length})` : tokens.length} tokens × ${sizes.d_model}`],
    ["Vocabulary", `${sizes.vocab_size.toLocaleString("en")} tokens`],
    ["Longest text", encoder ? `${most} tokens` : `${positions} tokens, prompt and output`],
    ["Precision", precision],
    ["Dimensions", dimensions],
  ];
  return rows.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
}

function tokenTable(text, { tokens, output_tokens: output = [], output: said = "" }) {
  const rows = (all, of) => {
    const texts = textsOf(all, of);
    return all.map((token, index) =>
      h("tr", {}, h("td", {}, texts[index]), h("td", {}, h("code", {}, token.token)), h("td", {}, String(token.id))),
    );
  };
  const head = h("tr", {}, ["Text", "Token", "Id"].map((name) => h("th", { scope: "col" }, name)));
  return h(
    "details",
    { class: "more panel" },
    h("summary", {}, "Tokens and their ids"),
    h("table", {}, h("thead", {}, head), h("tbody", {}, rows(tokens, text), rows(output, said))),
  );
}
