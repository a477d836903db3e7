// The messages of the gateway, the newest first.

import { make } from "./dom.js";
import { clock, foreign } from "./format.js";

/** Messages that are shown. */
const MOST = 300;

const LEVELS = { error: "error", warn: "warning", info: "info" };

export class Events {
  #list = make("ol", { class: "events", tabindex: "0", "aria-label": "Messages, newest first" });
  #empty = make("p", { class: "muted empty" }, "No messages yet.");
  #note = make("span", { class: "muted" });
  #source = null;
  #retry = null;
  #pause = 2;
  /** The newest message, and the run of the gateway that it is of. */
  #last = 0;
  #run = null;
  #seen = new Set();

  constructor(host) {
    const choice = make("select", { id: "events-level" },
      make("option", { value: "all" }, "all"), make("option", { value: "warn" }, "warnings and errors"));
    choice.addEventListener("change", () => {
      this.#list.dataset.only = choice.value;
    });
    host.append(
      make("div", { class: "head" }, make("h2", { id: "events-title" }, "What has happened"), this.#note,
        make("label", {}, "Show ", choice)),
      this.#list, this.#empty);
  }

  /** Follows the messages of a gateway; `run` is different after each of its starts, which count from 1 again. */
  follow(run) {
    if (this.#source !== null && this.#run === run) return;
    this.stop();
    if (this.#run !== run) this.#last = 0;
    this.#run = run;
    const source = new EventSource(`api/v1/events?after=${this.#last}`);
    this.#source = source;
    source.addEventListener("open", () => {
      this.#pause = 2;
      this.#note.textContent = "";
    });
    source.addEventListener("message", ({ data }) => this.#add(JSON.parse(data)));
    source.addEventListener("lost", ({ data }) => {
      this.#note.textContent = `${data} messages were missed: they came faster than this page reads`;
    });
    source.addEventListener("error", () => {
      // A browser would ask on its own, but with the number of an earlier run, and not at all after a refusal.
      this.stop();
      this.#note.textContent = "no further messages: trying again";
      this.#retry = setTimeout(() => this.follow(run), this.#pause * 1000);
      this.#pause = Math.min(30, this.#pause * 2);
    });
  }

  /** Follows no longer; what is shown stays. */
  stop() {
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#retry);
  }

  #add(event) {
    this.#last = Math.max(this.#last, event.number);
    const key = `${event.number} ${event.unix_seconds}`;
    if (this.#seen.has(key)) return;
    this.#seen.add(key);
    const level = event.level in LEVELS ? event.level : "info";
    const fields = Object.entries(event.fields ?? {}).flatMap(([name, value]) => [" ", foreign(`${name}=${value}`)]);
    this.#list.prepend(
      make("li", { class: level },
        make("time", {}, clock(event.unix_seconds)),
        make("span", { class: "level" }, make("span", { class: "sign", "aria-hidden": "true" }), LEVELS[level]),
        make("span", { class: "message" }, foreign(event.message, 2000), make("span", { class: "muted" }, ...fields)),
        make("span", { class: "module muted" }, foreign(event.module))));
    while (this.#list.childElementCount > MOST) this.#list.lastElementChild.remove();
    if (this.#seen.size > 4 * MOST) this.#seen = new Set([...this.#seen].slice(-2 * MOST));
    this.#empty.hidden = true;
  }
}
