// The page: asks for the state of the gateway and shows it.
// A hidden tab asks for nothing. Without an answer the page says so and tries again, with growing pauses.

import { byId, make, setText } from "./dom.js";
import { Events } from "./events.js";
import { age, bytes, clock, foreign } from "./format.js";
import { Orders } from "./orders.js";
import { Panels } from "./panels.js";
import { SPAN, strip } from "./plot.js";

/** Seconds in which an answer has to come. */
const PATIENCE = 10;
/** The longest pause between two tries, in seconds. */
const LONGEST_PAUSE = 30;
/** Seconds between two looks at the configuration. */
const CONFIG_EVERY = 60;

const WORDS = {
  ok: "Healthy", degraded: "Degraded", failing: "Failing", opening: "Opening the volume", stopping: "Stopping",
  away: "No answer", refused: "Refused",
};

const panels = new Panels();
const events = new Events(byId("events"));
const orders = new Orders(byId("orders"));

let points = [];
/** The last sample that was received; 0 asks for all. */
let sequence = 0;
let interval = 2;
/** The run of the gateway: each opening of the volume has an epoch of its own. */
let epoch = null;
let lastAnswer = null;
let configAt = -Infinity;
let pause = 0;
let timer = null;
let paused = false;
/** The request under way; another one replaces it. */
let asking = null;

class Refused extends Error {}

async function ask(path, signal) {
  const answer = await fetch(path, { signal, cache: "no-store" });
  let body;
  try {
    body = await answer.json();
  } catch {
    throw new Refused(`${path}: ${answer.status} without an answer that this page understands`);
  }
  return { code: answer.status, body };
}

/** Asks once, shows the answer, and plans the next time. */
async function look() {
  clearTimeout(timer);
  asking?.abort();
  const own = new AbortController();
  asking = own;
  const signal = AbortSignal.any([own.signal, AbortSignal.timeout(PATIENCE * 1000)]);
  try {
    const [ready, status, live] = await Promise.all([
      ask("health/ready", signal), ask("api/v1/status", signal), ask(`api/v1/live?after=${sequence}`, signal),
    ]);
    if (!(ready.body.state in WORDS)) throw new Refused(ready.body.error ?? `health/ready: ${ready.code}`);
    const restarted = status.code === 200 && epoch !== null && status.body.epoch !== epoch;
    // Samples of another run are counted from 1 again.
    const samples = restarted && sequence > 0 ? await ask("api/v1/live", signal) : live;
    if (own.signal.aborted) return;
    if (status.code === 200) epoch = status.body.epoch;
    answered(ready.body, status, samples, restarted);
    events.follow(epoch);
    await lookAtConfig(signal, restarted);
    pause = interval;
  } catch (error) {
    if (own.signal.aborted) return;
    notAnswered(error);
    pause = Math.min(LONGEST_PAUSE, Math.max(interval, pause * 2));
    setText(byId("answer"), `next try at ${clock(Date.now() / 1000 + pause)}`);
  }
  timer = setTimeout(look, pause * 1000);
}

async function lookAtConfig(signal, restarted) {
  const now = performance.now() / 1000;
  if (now - configAt < CONFIG_EVERY && !restarted) return;
  const { code, body } = await ask("api/v1/config", signal);
  if (code !== 200) return;
  configAt = now;
  const token = body.admin_token?.value;
  orders.allow(typeof token === "string" && token !== "none");
}

function answered(ready, status, live, restarted) {
  lastAnswer = Date.now() / 1000;
  document.body.classList.remove("stale");
  byId("again").hidden = true;
  setText(byId("answer"), paused ? "paused" : `live, ${clock(lastAnswer)}`);
  const problems = ready.problems ?? [];
  showHealth(ready.state, {
    ok: () => ["The gateway owns the volume and serves it."],
    opening: () => [ready.step],
    stopping: () => [ready.reason],
  }[ready.state]?.() ?? problems.map(({ message }) => message));
  if (live.code === 200) {
    interval = live.body.interval_seconds;
    const first = live.body.series[0];
    if (restarted && first) points = points.filter(({ time }) => time < first.time);
    const last = points[points.length - 1]?.time ?? -Infinity;
    points.push(...live.body.series.filter(({ time }) => time > last));
    points = points.filter(({ time }) => time >= live.body.time - SPAN);
    sequence = live.body.series[live.body.series.length - 1]?.sequence ?? (restarted ? 0 : sequence);
    panels.samples(live.body, points, interval * 3.5);
    past(live.body.time);
  }
  if (status.code === 200) {
    showBehind(status.body);
    panels.status(status.body);
    const { volume, store, uptime_seconds: uptime } = status.body;
    byId("volume").replaceChildren(foreign(store), ` · up ${age(uptime)}`);
    byId("volume").title = `volume ${volume}`;
  }
  document.title = `${WORDS[ready.state]} – Forebay`;
}

function notAnswered(error) {
  document.body.classList.add("stale");
  byId("again").hidden = false;
  setText(byId("behind-label"), "The bucket was behind by");
  events.stop();
  // The gateway may come back as another run.
  sequence = 0;
  const refused = error instanceof Refused;
  const since = lastAnswer === null ? "No answer yet." : `No answer since ${clock(lastAnswer)}.`;
  const more = lastAnswer === null ? "" : " Everything below is as it was then.";
  showHealth(refused ? "refused" : "away", [refused ? error.message : `${since}${more}`]);
  document.title = `${WORDS[refused ? "refused" : "away"]} – Forebay`;
}

function showHealth(state, reasons) {
  byId("health").dataset.state = state;
  setText(byId("word"), WORDS[state]);
  const list = byId("problems");
  // Only what changes is read aloud.
  if (list.dataset.shown === JSON.stringify(reasons)) return;
  list.dataset.shown = JSON.stringify(reasons);
  list.replaceChildren(...reasons.map((reason) => make("li", {}, foreign(reason, 1000))));
}

function showBehind({ unpublished_bytes: behind, oldest_unpublished_age_seconds: oldest }) {
  const nothing = oldest === null;
  setText(byId("behind-label"), "The bucket is behind by");
  setText(byId("behind-bytes"), nothing ? "nothing" : bytes(behind));
  setText(byId("behind-age"), nothing ? "everything is in the bucket" : `the oldest change is ${age(oldest)} old`);
}

function past(now) {
  const host = byId("past");
  const levels = { healthy: 4, degraded: 8, failing: 12 };
  setText(byId("past-from"), strip(host, points, now, interval * 3.5, levels));
  const bad = points.filter(({ health }) => health !== "healthy").length;
  const part = points.length === 0 ? 0 : Math.round((bad / points.length) * 100);
  host.setAttribute("aria-label", `Health of the last minutes: ${part === 0 ? "healthy" : `not healthy for ${part} % of it`}`);
}

function stop() {
  clearTimeout(timer);
  asking?.abort();
  events.stop();
}

function goOn() {
  if (paused || document.hidden) stop();
  else look();
}

document.addEventListener("visibilitychange", goOn);
byId("again").addEventListener("click", look);
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  setText(byId("pause"), paused ? "Go on" : "Pause");
  byId("again").hidden = true;
  if (paused) setText(byId("answer"), lastAnswer === null ? "paused" : `paused at ${clock(lastAnswer)}`);
  goOn();
});
goOn();
