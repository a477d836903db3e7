// The orders of an operator, which need the token of `admin_token`. It stays in this tab: browsers send it by
// themselves to nobody, and it is gone when the tab is closed.

import { byId, make, setText } from "./dom.js";
import { bytes, foreign, latency } from "./format.js";

const KEPT_AS = "forebay.admin_token";

const ORDERS = [
  {
    name: "Flush",
    path: "api/v1/flush",
    about: "Publishes everything that has been written so far, and reports when the bucket has it.",
    said: (report) => `the bucket holds everything up to LSN ${report.published_lsn}: ${bytes(report.uploaded_bytes)} uploaded in ${latency(report.seconds)}`,
  },
  {
    name: "Scrub",
    path: "api/v1/scrub",
    about: "Reads and verifies every pack in the bucket, at the rate of scrub_rate. These reads cost requests and, outside of the provider's network, traffic.",
    said: ({ running, packs }) => (running
      ? `a round has begun: ${running.packs} packs, ${bytes(running.bytes)}`
      : `nothing to read: the volume has ${packs} packs`),
  },
  {
    name: "Collect",
    path: "api/v1/gc",
    about: "Rewrites all packs that are mostly dead, and frees their space in the bucket.",
    said: (report) => (report.packs_to_rewrite > 0
      ? `${report.packs_to_rewrite} packs to rewrite, which frees ${bytes(report.dead_bytes_to_free)}`
      : "no pack is mostly dead"),
  },
];

export class Orders {
  #ask = byId("ask");
  #buttons = make("p", { class: "buttons" });
  #none = make("p", { class: "muted" }, "None: orders need admin_token in the configuration, and this gateway has none.");
  #said = make("ul", { class: "said", role: "status", "aria-live": "polite" });
  #forget = make("button", { type: "button", hidden: "" }, "Forget the token");
  #order = null;

  constructor(host) {
    for (const order of ORDERS) {
      const button = make("button", { type: "button" }, `${order.name} …`);
      button.addEventListener("click", () => this.#open(order));
      this.#buttons.append(button);
    }
    this.#buttons.append(this.#forget);
    this.#forget.addEventListener("click", () => {
      sessionStorage.removeItem(KEPT_AS);
      this.#forget.hidden = true;
      this.#say("The token", "is forgotten.");
    });
    host.append(this.#none, this.#buttons, this.#said);
    this.allow(false);
    const form = this.#ask.querySelector("form");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const field = form.elements.token;
      if (field.value !== "") sessionStorage.setItem(KEPT_AS, field.value.trim());
      field.value = "";
      this.#ask.close();
      this.#give(this.#order);
    });
    byId("ask-leave").addEventListener("click", () => this.#ask.close());
  }

  /** Whether the gateway takes orders at all. */
  allow(allowed) {
    this.#buttons.hidden = !allowed;
    this.#none.hidden = allowed;
    this.#forget.hidden = sessionStorage.getItem(KEPT_AS) === null;
  }

  #open(order) {
    this.#order = order;
    setText(byId("ask-title"), `${order.name}?`);
    setText(byId("ask-text"), order.about);
    setText(byId("ask-go"), order.name);
    const known = sessionStorage.getItem(KEPT_AS) !== null;
    const field = this.#ask.querySelector("input");
    field.required = !known;
    byId("ask-token").hidden = known;
    this.#ask.showModal();
    (known ? byId("ask-go") : field).focus();
  }

  async #give(order) {
    const line = this.#say(order.name, "is under way …");
    try {
      const answer = await fetch(order.path, {
        method: "POST",
        headers: { authorization: `Bearer ${sessionStorage.getItem(KEPT_AS)}` },
      });
      const body = await answer.json();
      const wrong = answer.status === 401;
      if (wrong) sessionStorage.removeItem(KEPT_AS);
      if (answer.ok) line(order.said(body), "done");
      else line(wrong ? "this is not the token of admin_token" : body.error, "failed");
    } catch (error) {
      line(`no answer: ${error.message}`, "failed");
    }
    this.#forget.hidden = sessionStorage.getItem(KEPT_AS) === null;
  }

  /** Adds a line about an order; returns how to replace its text. */
  #say(name, text) {
    const content = make("span");
    const line = make("li", {}, make("b", {}, `${name}: `), content);
    const set = (next, state = "open") => {
      content.replaceChildren(foreign(next));
      line.className = state;
    };
    set(text);
    this.#said.prepend(line);
    while (this.#said.childElementCount > 4) this.#said.lastElementChild.remove();
    return set;
  }
}
