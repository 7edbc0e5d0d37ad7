// Requests to the server, each with what it was, what came and how long it took, so that a screen can show it.

const KEY = "trifold-key";
const listeners = new Set();
let asking = null; // who is refused waits for it
let give = null;
let isWrong = false; // the key that was given

export class Refused extends Error {}

export function onKeyNeeded(listener) {
  listeners.add(listener);
  if (asking) listener(give, isWrong);
}
export const hasKey = () => readKey() !== null;

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
  throw error.name === "AbortError" ? error : new Refused("The server does not answer; it may be restarting: try again in a moment");
}

async function send(path, options) {
  for (;;) {
    const key = readKey();
    const response = await fetch(path, { ...options, headers: { ...options.headers, ...headers(key) } }).catch(gone);
    if (response.status !== 401) return response;
    if (key === readKey()) await newKey(); // else another was given meanwhile
    options.signal?.throwIfAborted();
  }
}

async function refusal(response) {
  const answer = await response.json().catch(() => null);
  const error = new Refused(answer?.error?.message ?? `the server answered ${response.status}`);
  error.status = response.status;
  error.answer = answer;
  error.retryAfter = Number(response.headers.get("Retry-After")) || 0;
  return error;
}

export async function get(path) {
  const response = await send(path, {});
  if (!response.ok) throw await refusal(response);
  return response;
}

function posted(body, signal) {
  return { method: "POST", body: JSON.stringify(body), signal, headers: { "Content-Type": "application/json" } };
}

// Returns the response to a request that was not refused. A refusal is thrown with its call in it.
async function asked(path, body, signal) {
  const started = performance.now();
  const response = await send(path, posted(body, signal));
  if (response.ok) return response;
  const error = await refusal(response);
  error.call = { path, body, answer: error.answer, seconds: (performance.now() - started) / 1000 };
  throw error;
}

// Asks, and returns the call: its path, body, answer and seconds.
export async function post(path, body, signal) {
  const started = performance.now();
  const response = await asked(path, body, signal);
  const answer = await response.json();
  return { path, body, answer, seconds: (performance.now() - started) / 1000 };
}

// Yields the events of a stream. An error that comes as one is thrown.
export async function* stream(path, body, signal) {
  const response = await asked(path, body, signal);
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
  return (wait = pause) => {
    clearTimeout(timer);
    controller.abort();
    controller = new AbortController();
    const { signal } = controller;
    timer = setTimeout(() => run(signal).catch((error) => signal.aborted || onerror(error)), wait);
  };
}
