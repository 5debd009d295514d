/** The tokens as spans, built once; what changes later is their colour, and which of them is marked. */

class Tokens {
  constructor(box) {
    this.box = box;
    this.spans = [];
    this.marked = { hovered: null, pinned: null };
  }

  /** A line for each line break among the tokens, so that the browser can leave out the lines that are out of sight. */
  build({ shown, clipped, untrained, label }) {
    const turns = new Set(untrained.flat()); // what is said by another stands on lines of its own
    const lines = document.createDocumentFragment();
    let line = null;
    this.spans = shown.map((text, place) => {
      if (turns.has(place)) line = null;
      if (line === null) {
        line = document.createElement("div");
        line.className = "line";
        line.role = "presentation";
        lines.append(line);
      }
      const span = document.createElement("span");
      span.textContent = text.replace(/\n$/, ""); // the line ends here by itself
      span.place = place;
      span.id = `token-${place}`;
      span.role = "option";
      if (text.startsWith("·")) line.append(document.createElement("wbr"));
      line.append(span);
      if (text.endsWith("\n")) line = null;
      return span;
    });
    for (const [start, end] of untrained) {
      for (const span of this.spans.slice(start, end)) span.classList.add("untrained");
    }
    for (const place of clipped) this.spans[place].classList.add("clipped");
    this.marked = { hovered: null, pinned: null };
    this.box.setAttribute("aria-label", label);
    this.box.replaceChildren(lines);
  }

  colour(values, colour) {
    values.forEach((value, place) => {
      const span = this.spans[place];
      span.style.backgroundColor = colour(value);
      span.classList.toggle("missing", Number.isNaN(value));
    });
  }

  /** The position of the token that an event is about; null where it is about none. */
  static place(event) {
    return event.target.closest("[role=option]")?.place ?? null;
  }

  mark(kind, place) {
    this.marked[kind]?.classList.remove(kind);
    this.marked[kind] = place === null ? null : this.spans[place];
    this.marked[kind]?.classList.add(kind);
  }

  /** Tell assistive technology which token is chosen. */
  choose(place) {
    this.box.querySelector("[aria-selected]")?.removeAttribute("aria-selected");
    if (place === null) this.box.removeAttribute("aria-activedescendant");
    else {
      this.spans[place].setAttribute("aria-selected", "true");
      this.box.setAttribute("aria-activedescendant", this.spans[place].id);
    }
  }

  /** Scroll the box, never the page, until the token is in its upper part: the lower one may be below the window. */
  reveal(place) {
    const span = this.spans[place].getBoundingClientRect();
    const box = this.box.getBoundingClientRect();
    if (span.top < box.top || span.bottom > box.bottom) this.box.scrollTop += span.top - box.top - box.height / 4;
  }
}
