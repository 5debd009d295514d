/** What a person does with the view, and what follows from it. Kept between two renderings of the page. */

const REMEMBERED_AFTER = 250; // milliseconds without another choice
const views = new WeakMap();

class View {
  constructor(root) {
    this.root = root;
    this.part = (name) => root.querySelector(`.${name}`);
    this.tokens = new Tokens(this.part("tokens"));
    this.chart = new Chart(this.part("chart"));
    this.data = null;
    this.hovered = this.pinned = null;
    this.#listen();
  }

  leave() {
    this.remember();
    this.chart.leave();
  }

  /** Draw what the server sent. The same completion again changes nothing but the theme's colours. */
  show(data, tell) {
    this.tell = tell;
    if (this.data?.completion !== data.completion) {
      this.remember();
      this.data = data;
      this.values = new Map(data.columns.map((column) => [column.name, decoded(column.values)]));
      this.hovered = null;
      this.tokens.build(data);
      this.#buildChoices();
      this.#buildPanel();
      const address = new URLSearchParams(location.search);
      this.colour = address.get("colour");
      this.#paint();
      const token = Number(address.get("token"));
      this.#pin(Number.isInteger(token) && token >= 1 && token <= data.ids.length ? token - 1 : null);
    } else this.#paint();
  }

  /** The column that colours the tokens: the chosen one, or the one that the view opens on. */
  get column() {
    const named = (name) => this.data.columns.find((column) => column.offered && column.name === name);
    return named(this.colour) ?? named(this.data.opens_on);
  }

  /** Put the choices into the address, and tell the server. */
  remember() {
    if (this.due === undefined) return;
    clearTimeout(this.due);
    this.due = undefined;
    const address = new URL(location.href);
    const chosen = { colour: this.colour, token: this.pinned === null ? null : this.pinned + 1 };
    for (const [name, value] of Object.entries(chosen)) {
      if (value === null) address.searchParams.delete(name);
      else address.searchParams.set(name, value);
    }
    history.replaceState(history.state, "", address);
    this.tell(chosen);
  }

  #rememberSoon() {
    clearTimeout(this.due);
    this.due = setTimeout(() => this.remember(), REMEMBERED_AFTER);
  }

  #listen() {
    const { box } = this.tokens;
    this.part("choices").addEventListener("change", (event) => {
      this.colour = event.target.value;
      this.#paint();
      this.#rememberSoon();
    });
    // The page's shortcuts move between completions by the same keys; here they move within one.
    this.part("choices").addEventListener("keydown", (event) => {
      if (event.key.startsWith("Arrow")) event.stopPropagation();
    });
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("pointerover", (event) => this.#hover(Tokens.place(event)));
    box.addEventListener("pointerleave", () => this.#hover(null));
    box.addEventListener("click", (event) => this.#choose(Tokens.place(event)));
    this.part("save").addEventListener("click", ({ target: { value } }) => {
      if (value) save(this.chart.drawn, value, `completion-${this.data.completion}-${this.column.name}`);
    });
    const chart = this.chart.box;
    chart.addEventListener("pointermove", (event) => this.#hover(this.chart.place(event.clientX)));
    chart.addEventListener("pointerleave", () => this.#hover(null));
    chart.addEventListener("click", (event) => {
      this.#choose(this.chart.place(event.clientX));
      box.focus({ preventScroll: true });
    });
  }

  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const last = this.data.ids.length - 1;
    const from = this.pinned ?? this.hovered;
    const moves = {
      ArrowLeft: () => (from === null ? last : Math.max(0, from - 1)),
      ArrowRight: () => (from === null ? 0 : Math.min(last, from + 1)),
      Home: () => 0,
      End: () => last,
      Escape: () => null,
    };
    if (!Object.hasOwn(moves, event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Escape") this.tokens.box.blur();
    this.#move(moves[event.key]());
  }

  /** A click: pins the token, or takes the pin off it. */
  #choose(place) {
    if (place !== null) this.#move(place === this.pinned ? null : place);
  }

  #move(place) {
    this.#pin(place);
    this.part("spoken").textContent = place === null ? "" : this.#sentence(place);
    this.#rememberSoon();
  }

  #pin(place) {
    this.pinned = place;
    this.tokens.mark("pinned", place);
    this.tokens.choose(place);
    this.chart.mark("pinned", place);
    if (place !== null) this.tokens.reveal(place);
    this.#read();
  }

  #hover(place) {
    if (place === this.hovered) return;
    this.hovered = place;
    this.tokens.mark("hovered", place);
    this.chart.mark("hovered", place);
    this.#read();
  }

  // ---- what is drawn

  #paint() {
    const { column } = this;
    const colours = palette(this.root);
    const colour = colouring(column, colours);
    const values = this.values.get(column.name);
    this.part("choices").querySelector(`[value="${column.name}"]`).checked = true;
    this.part("about").textContent = column.about;
    this.part("note").textContent = this.data.note;
    this.part("chart").ariaLabel = `${column.title} along the tokens`;
    this.tokens.colour(values, colour);
    this.chart.show(column, values, colour, colours, this.data.clipped);
    this.#legend(column, values, colour);
    this.data.columns.forEach((each, index) => this.numbers[index].classList.toggle("chosen", each === column));
  }

  #legend(column, values, colour) {
    const { middle, reach, signed } = column;
    const [least, most] = range(values);
    const low = signed ? middle - reach : middle;
    const high = middle + reach;
    const ends = [Math.min(low, high), Math.max(low, high)];
    const slack = Math.abs(reach) * 1e-5; // float32 rounds
    const beyond = { [ends[0]]: least < ends[0] - slack ? "≤ " : "", [ends[1]]: most > ends[1] + slack ? "≥ " : "" };
    const stops = Array.from({ length: 13 }, (_, stop) => colour(low + ((high - low) * stop) / 12));
    this.part("bar").style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    this.part("low").textContent = (signed ? beyond[low] : "") + written(low, 3, plus(column));
    this.part("middle").textContent = signed ? written(middle, 3) : "";
    this.part("high").textContent = beyond[high] + written(high, 3, plus(column));
    const same = least === most;
    for (const name of ["low", "bar", "high"]) this.part(name).hidden = same;
    this.part("same").textContent = same ? `${written(least, 6, plus(column))} throughout` : "";
    const clips = this.data.clipped.length;
    this.part("clips").hidden = clips === 0;
    this.part("count").textContent = `${clips} clipped`;
    this.part("silent").hidden = this.data.untrained.length === 0;
    this.part("unknown").hidden = !incomplete(values);
  }

  #buildChoices() {
    const choices = this.data.columns.filter((column) => column.offered).map(({ name, title }) => {
      const label = document.createElement("label");
      const radio = document.createElement("input");
      Object.assign(radio, { type: "radio", name: "colour", value: name });
      label.append(radio, title);
      return label;
    });
    this.part("choices").replaceChildren(...choices);
  }

  #buildPanel() {
    this.numbers = this.data.columns.map(({ title, about }) => {
      const pair = document.createElement("div");
      pair.title = about;
      const term = document.createElement("dt");
      term.textContent = title;
      pair.append(term, document.createElement("dd"));
      return pair;
    });
    this.root.querySelector("dl").replaceChildren(...this.numbers);
  }

  /** Fill the panel with the token that is pointed at, or else with the pinned one. */
  #read() {
    const place = this.hovered ?? this.pinned;
    this.part("hint").hidden = place !== null;
    this.part("read").hidden = place === null;
    this.data.columns.forEach((column, index) => {
      this.numbers[index].lastChild.textContent = place === null ? "" : this.#value(column, place);
    });
    if (place === null) return;
    const untrained = this.data.untrained.some(([start, end]) => start <= place && place < end);
    const marks = `${this.data.clipped.includes(place) ? " · clipped" : ""}${untrained ? " · not trained on" : ""}`;
    this.part("literal").textContent = this.#literal(place);
    this.part("place").textContent = `token ${place + 1} of ${this.data.ids.length} · id ${this.data.ids[place]}${marks}`;
  }

  /** The token as a literal: with escapes for what is not seen by itself. */
  #literal(place) {
    return this.data.literal[place] ?? `'${this.data.shown[place].replaceAll("·", " ")}'`;
  }

  #value(column, place) {
    return written(this.values.get(column.name)[place], 6, plus(column));
  }

  #sentence(place) {
    const { column } = this;
    return `Token ${place + 1}, ${this.#literal(place)}, ${column.title} ${this.#value(column, place)}`;
  }
}

export default function ({ data, parentElement, setStateValue }) {
  if (!views.has(parentElement)) views.set(parentElement, new View(parentElement.querySelector(".view")));
  const view = views.get(parentElement);
  view.show(data, (chosen) => setStateValue("chosen", chosen));
  return () => {
    view.leave();
    views.delete(parentElement);
  };
}
