// Tables that can be sorted. On a narrow screen each row is a card, so they keep their roles as attributes.

import { make } from "./dom.js";

/**
 * A table with a caption.
 *
 * `columns` has for each column its title, its value of a row (`of`), and its cell (`cell`: text or a node). `empty` is
 * shown without rows. Without an order of the reader's, rows stay in the order in which they came.
 */
export class Table {
  #columns;
  #rows = [];
  #order = null;
  #body = make("tbody", { role: "rowgroup" });
  #heads;
  #empty;

  constructor({ caption, note, columns, empty }) {
    this.#columns = columns;
    this.#empty = make("p", { class: "muted empty" }, empty);
    this.#heads = columns.map((column, index) => {
      const button = make("button", { type: "button", class: "sort" }, column.title, make("span", { class: "arrow", "aria-hidden": "true" }));
      button.addEventListener("click", () => this.#sort(index));
      return make("th", { scope: "col", role: "columnheader", class: index === 0 ? "name" : "number" }, button);
    });
    const head = make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...this.#heads));
    this.element = make("div", { class: "table" },
      make("table", { role: "table" },
        make("caption", {}, make("span", { class: "h2" }, caption), make("span", { class: "muted" }, note ?? "")), head, this.#body),
      this.#empty);
    this.show([]);
  }

  /** Shows these rows. */
  show(rows) {
    this.#rows = rows;
    this.#draw();
  }

  #sort(index) {
    const same = this.#order?.index === index;
    // Numbers begin with the largest, names with the first.
    const first = index === 0 ? 1 : -1;
    this.#order = { index, sign: same ? -this.#order.sign : first };
    this.#heads.forEach((head, at) => {
      head.removeAttribute("aria-sort");
      if (at === index) head.setAttribute("aria-sort", this.#order.sign > 0 ? "ascending" : "descending");
    });
    this.#draw();
  }

  #draw() {
    const rows = [...this.#rows];
    if (this.#order) {
      const { index, sign } = this.#order;
      const { of } = this.#columns[index];
      rows.sort((one, other) => sign * compare(of(one), of(other)));
    }
    this.#body.replaceChildren(...rows.map((row) => this.#row(row)));
    this.#empty.hidden = rows.length > 0;
    this.element.dataset.rows = rows.length;
  }

  #row(row) {
    const cells = this.#columns.map(({ title, cell }, index) =>
      index === 0
        ? make("th", { scope: "row", role: "rowheader", class: "name" }, cell(row))
        : make("td", { role: "cell", class: "number" }, make("span", { class: "card-title", "aria-hidden": "true" }, title), cell(row)));
    return make("tr", { role: "row" }, ...cells);
  }
}

function compare(one, other) {
  if (typeof one === "string" || typeof other === "string") return String(one).localeCompare(String(other), "en", { numeric: true });
  return (one ?? -1) - (other ?? -1);
}
