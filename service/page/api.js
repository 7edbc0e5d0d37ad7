// Requests to the server, each with what it was, what came and how long it took, so that a screen can show it.

const KEY = "trifold-key";
const listeners = new Set();
let asking = null; // who is refused waits for it
let give = null;
let isWrong = false; // the key that was given

// An error in words for people.
export class Refused extends Error {}

// What is told of an error. One that is not in words for people is a mistake of the page's.
export function wordsOf(error) {
  if (error instanceof Refused) return error.message;
  reportError(error);
  return "This page made a mistake, which the browser’s console has; try again, or reload the page";
}

export function onKeyNeeded(listener) {
  listeners.add(listener);
  if (asking) listener(give, isWrong);
}
export const hasKey = () => readKey() !== null;
export const keyNeeded = () => asking; // what ends when a key is given, or null

let kept = null; // the key, where the browser keeps nothing of this site's
function readKey() {
  try {
    return sessionStorage.getItem(KEY) ?? kept;
  } catch {
    return kept;
  }
}

function writeKey(key) {
  kept = key;
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // then it lives as long as the page
  }
}

function headers(key) {
  return key === null ? {} : { Authorization: `Bearer ${key}` };
}

// Everybody who was refused waits for the same key; it lives as long as the tab.
function newKey() {
  if (!asking) isWrong = hasKey();
  asking ??= new Promise((resolve) => {
    give = (key) => {
      writeKey(key.replace(/[^\x21-\x7e]/g, "")); // nothing else can be in a header, or in a key of ours
      asking = null;
      resolve();
    };
    listeners.forEach((listener) => listener(give, isWrong));
  });
  return asking;
}

// In place of the browser's own words, which are others in each.
function gone(error) {
  if (error.name === "AbortError") throw error;
  const isRead = error instanceof SyntaxError;
  throw new Refused(isRead ? "What answers is not this server" : "The server does not answer; it may be restarting: try again in a moment");
}

const aborted = (signal) =>
  new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason), { once: true }));

// Returns the response, and when what it answers was sent: the time in which a person types the key is not the server's.
async function send(path, options) {
  for (;;) {
    const key = readKey();
    const started = performance.now();
    const response = await fetch(path, { ...options, headers: { ...options.headers, ...headers(key) } }).catch(gone);
    if (response.status !== 401) return { response, started };
    options.signal?.throwIfAborted();
    if (key === readKey()) await Promise.race([newKey(), aborted(options.signal)]); // else another was given meanwhile
  }
}

async function refusal(response) {
  const answer = await response.json().catch(() => null);
  const error = new Refused(answer?.error?.message ?? `the server answered ${response.status}`);
  error.answer = answer;
  error.param = answer?.error?.param;
  error.retryAfter = Number(response.headers.get("Retry-After")) || 0;
  return error;
}

export async function get(path) {
  const { response } = await send(path, {});
  if (!response.ok) throw await refusal(response);
  return response.json().catch(gone);
}

function posted(body, signal) {
  return { method: "POST", body: JSON.stringify(body), signal, headers: { "Content-Type": "application/json" } };
}

// What is asked, and in time what was answered and how many seconds that took. `setting` tells calls of one path apart.
export const newCall = (path, body, setting = null) => ({ path, body, setting, answer: null, started: null, seconds: null });

export const nameOf = ({ path, setting }) => (setting ? `/${path} ${setting}` : `/${path}`);

export const answered = (call, answer) => Object.assign(call, { answer, seconds: (performance.now() - call.started) / 1000 });

// Returns the response to a request that was not refused.
async function asked(call, signal) {
  const { response, started } = await send(call.path, posted(call.body, signal));
  call.started = started;
  if (response.ok) return response;
  const error = await refusal(response);
  answered(call, error.answer);
  throw error;
}

// Asks, and returns the call. What goes wrong is thrown with the call in it.
export async function post(path, body, signal) {
  const call = newCall(path, body);
  try {
    const response = await asked(call, signal);
    return answered(call, await response.json().catch(gone));
  } catch (error) {
    throw Object.assign(error, { call });
  }
}

// Yields the events of a stream. An error that comes as one is thrown.
export async function* stream(call, signal) {
  const response = await asked(call, signal);
  let rest = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read().catch(gone);
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: {")) continue;
      const event = JSON.parse(line.slice("data: ".length));
      if (event.error) throw new Refused(event.error.message);
      yield event;
    }
  }
}

// Runs the newest of many wishes: a wish comes after a pause, and ends the one before it.
export function latest(run, onerror, pause = 300) {
  let timer;
  let controller = new AbortController();
  function end() {
    clearTimeout(timer);
    controller.abort();
  }
  function wish(wait = pause) {
    end();
    controller = new AbortController();
    const { signal } = controller;
    timer = setTimeout(() => run(signal).catch((error) => signal.aborted || onerror(error)), wait);
  }
  return { wish, end };
}
