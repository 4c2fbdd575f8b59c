// What a page must be for everybody, asked of the page itself as it stands in the browser. One expression: an object of questions.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const part = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([red, green, blue]) => 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = rgba(getComputedStyle(at).backgroundColor);
      if (found[3] > 250) return found;
    }
    return [255, 255, 255, 255];
  };
  const named = (element) => (element.getAttribute("aria-label") || element.textContent || "").trim();

  return {
    /** Names, headings, tables, ids, width. */
    structure() {
      const wrong = [];
      if (document.querySelectorAll("h1").length !== 1) wrong.push("there is not one h1");
      if (!document.documentElement.lang || !document.title.trim() || !document.querySelector("main")) wrong.push("no language, title or main");
      let level = 0;
      for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
        const own = Number(heading.tagName[1]);
        if (own > level + 1) wrong.push(`heading ${heading.textContent} jumps from ${level} to ${own}`);
        if (!heading.textContent.trim()) wrong.push("an empty heading");
        level = own;
      }
      for (const element of document.querySelectorAll("a, button, summary, [role=img], [role=region], section, article, nav")) {
        const by = element.getAttribute("aria-labelledby");
        if (by ? !document.getElementById(by) : !named(element)) wrong.push(`${element.tagName} has no name`);
      }
      for (const input of document.querySelectorAll("input, select, textarea")) if (!input.labels.length) wrong.push(`${input.id} has no label`);
      for (const table of document.querySelectorAll("table")) {
        if (!table.caption?.textContent.trim()) wrong.push("a table without a caption");
        if ([...table.querySelectorAll("thead th")].some((head) => head.scope !== "col" || !head.textContent.trim())) wrong.push("a head that is none");
      }
      const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
      if (new Set(ids).size !== ids.length) wrong.push("an id twice");
      if (document.documentElement.scrollWidth > innerWidth) wrong.push(`${document.documentElement.scrollWidth} wide on ${innerWidth}`);
      for (const element of document.querySelectorAll("[tabindex]")) if (element.tabIndex > 0) wrong.push("an order of its own");
      return wrong;
    },

    /** Every text that is seen and stands out too little from what is behind it. */
    contrast() {
      const found = {};
      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const text = walker.currentNode.data.trim();
        const element = walker.currentNode.parentElement;
        const style = getComputedStyle(element);
        if (!text || style.visibility === "hidden" || !element.getClientRects().length || element.closest("noscript, title, desc")) continue;
        const value = ratio(rgba(element.closest("svg") ? style.fill : style.color), behind(element));
        if (value < 4.5) found[`${element.tagName}.${element.getAttribute("class") ?? ""} ${text.slice(0, 30)}`] = Math.round(value * 100) / 100;
      }
      return found;
    },

    /** Pairs of colours of what is drawn, by their names in the style sheet. */
    drawn(pairs) {
      const root = getComputedStyle(document.documentElement);
      const colour = (name) => rgba(root.getPropertyValue(name));
      return pairs.filter(([one, other]) => ratio(colour(one), colour(other)) < 3).map(([one, other]) => `${one} on ${other}`);
    },

    /** Where the keyboard is, and whether that is seen. */
    focus() {
      const at = document.activeElement;
      const style = getComputedStyle(at);
      const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
      return { tag: at.tagName, text: named(at).slice(0, 60), id: at.id, seen };
    },
  };
})()
