"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const find = (id) => document.getElementById(id);
  const items = [...document.querySelectorAll("[data-text]")];
  const all = items.filter((item) => item.closest(".results")).length;
  const told = new Map(items.map((item) => [item, item.dataset.text.toLowerCase()]));

  // Filter by words, system and verdict; what has no verdict follows the words and the system.
  const filter = () => {
    const words = find("words").value.toLowerCase().split(/\s+/).filter(Boolean);
    const system = find("system").value;
    const wanted = new Set([...document.querySelectorAll("#tools [name=verdict]:checked")].map((box) => box.value));
    let shown = 0;
    for (const item of items) {
      const verdict = item.dataset.verdict;
      const fits = words.every((word) => told.get(item).includes(word)) &&
        (!system || item.dataset.system === system) && (!verdict || wanted.has(verdict));
      item.classList.toggle("hidden", !fits);
      shown += fits && item.closest(".results") ? 1 : 0;
    }
    for (const group of document.querySelectorAll("[data-group]")) {
      group.classList.toggle("hidden", !group.querySelector("[data-text]:not(.hidden)"));
    }
    find("count").textContent = `${shown} of ${all} results`;
  };
  for (const field of document.querySelectorAll("#tools input, #tools select")) {
    field.addEventListener("input", filter);
  }
  filter();

  // Tooltips that also work by touch and keyboard; the text is that of the mark's title.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);
  const text = (mark) => {
    const title = mark.querySelector(":scope > title");
    if (title) {
      mark.dataset.tip = title.textContent;
      // The browser's own tooltip goes with the title; who hears the page still hears its words.
      const named = mark.closest("a") || mark;
      named.setAttribute("aria-label", title.textContent);
      if (named === mark) mark.setAttribute("role", "img");
      title.remove();
    }
    return mark.dataset.tip;
  };
  const show = (event) => {
    const near = event.target.closest ? event.target.closest("svg a, svg circle, svg path, svg rect, svg polyline") : null;
    const mark = near && near.tagName === "a" ? near.firstElementChild : near;
    const words = mark && text(mark);
    tip.hidden = !words;
    if (!words) return;
    tip.textContent = words;
    const box = mark.getBoundingClientRect();
    const over = mark.closest("dialog") || document.body;
    if (tip.parentNode !== over) over.append(tip);
    tip.style.left = `${Math.max(4, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${box.top > 60 ? box.top - tip.offsetHeight - 8 : box.bottom + 8}px`;
  };
  for (const kind of ["pointerover", "focusin", "pointerdown"]) document.addEventListener(kind, show);
  addEventListener("scroll", () => { tip.hidden = true; }, true);

  // Zoom: a figure in a window of its own, by wheel, buttons and dragging.
  const dialog = find("zoom");
  const place = find("figure");
  let view = [0, 0, 1, 1], whole = view;
  const look = () => place.firstElementChild.setAttribute("viewBox", view.join(" "));
  const zoom = (factor, x = 0.5, y = 0.5) => {
    const [left, top, wide, high] = view;
    const size = Math.min(Math.max(factor, whole[2] / 40 / wide), whole[2] / wide);
    view = [left + wide * (1 - size) * x, top + high * (1 - size) * y, wide * size, high * size];
    look();
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.zoom) zoom(Number(button.dataset.zoom));
    else if (button.dataset.whole) { view = [...whole]; look(); }
    else if (button.dataset.close) dialog.close();
    else if (button.closest("figure")) {
      place.replaceChildren(button.closest("figure").querySelector("svg").cloneNode(true));
      const base = place.firstElementChild.viewBox.baseVal;
      whole = [base.x, base.y, base.width, base.height];
      view = [...whole];
      dialog.showModal();
    }
  });
  place.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = place.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  }, { passive: false });
  place.addEventListener("pointermove", (event) => {
    if (!event.buttons) return;
    const box = place.getBoundingClientRect();
    view[0] -= event.movementX / box.width * view[2];
    view[1] -= event.movementY / box.height * view[3];
    look();
  });

  // A link to a record opens it.
  const open = () => {
    const target = location.hash.length > 1 && find(decodeURIComponent(location.hash.slice(1)));
    const details = target && target.closest("details");
    if (details) {
      details.open = true;
      details.classList.remove("hidden");
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", () => { dialog.close(); open(); });
  open();
})();
