// Languages: what they are called, from which into which a model translates, and a text in some to begin with.

const SAMPLES = new Map([
  ["en", "The little dog sleeps under the old tree."],
  ["de", "Der kleine Hund schläft unter dem alten Baum."],
  ["sv", "Den lilla hunden sover under det gamla trädet."],
  ["fr", "Le petit chien dort sous le vieil arbre."],
  ["es", "El perrito duerme bajo el viejo árbol."],
]);
const names = new Intl.DisplayNames(["en"], { type: "language" });

// A language as HTML has it; nothing where nobody knows it.
export const tag = (code) => (code ?? "").replaceAll("_", "-");

export function called(code) {
  try {
    return names.of(tag(code)) ?? code;
  } catch {
    return code;
  }
}

// "en" of "en", "en_XX" and "eng_Latn", as models name it.
function languageOf(code) {
  try {
    return new Intl.Locale(tag(code)).language;
  } catch {
    return code;
  }
}

export function goalsOf({ directions, languages }, from) {
  if (!directions.length) return languages.filter((each) => each !== from);
  return [...new Set(directions.filter(([start]) => from === "auto" || start === from).map(([, end]) => end))];
}

// What may be chosen as a text's language, and what is chosen at first: English, of which there is always a sample.
export function sourceChoice({ directions, languages }) {
  const sources = directions.length ? [...new Set(directions.map(([start]) => start))] : languages;
  const options = [["auto", "Find out"], ...sources.map((each) => [each, called(each)])];
  return [options, sources.find((each) => languageOf(each) === "en") ?? sources[0]];
}

export const sampleIn = (code) => SAMPLES.get(languageOf(code)) ?? "";

// Whether a text is nobody's own, so that another may stand there.
export const isSample = (text) => !text || [...SAMPLES.values()].includes(text);
