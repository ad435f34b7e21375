"use strict";
(() => {
  document.documentElement.classList.add("scripted");
  const find = (id) => document.getElementById(id);
  const items = [...document.querySelectorAll("[data-text]")];
  const cases = items.filter((item) => item.closest(".results"));

  // Filter by words, system and verdict; what has no verdict follows the words and the system.
  const filter = () => {
    const words = find("words").value.toLowerCase().split(/\s+/).filter(Boolean);
    const system = find("system") ? find("system").value : "";
    const boxes = [...document.querySelectorAll("#tools [name=verdict]")];
    const unwanted = boxes.filter((box) => !box.checked).map((box) => box.value);
    for (const item of items) {
      const { text, verdict = "" } = item.dataset;
      const verdicts = verdict.split(" ").filter(Boolean);
      const fits = words.every((word) => text.toLowerCase().includes(word)) &&
        (!system || item.dataset.system === system) &&
        (!verdicts.length || verdicts.some((one) => !unwanted.includes(one)));
      item.classList.toggle("hidden", !fits);
    }
    for (const group of document.querySelectorAll("[data-group]")) {
      group.classList.toggle("hidden", !group.querySelector("[data-text]:not(.hidden)"));
    }
    const shown = cases.filter((item) => !item.classList.contains("hidden")).length;
    find("count").textContent = `${shown} of ${cases.length} cases`;
  };
  find("tools").addEventListener("input", filter);
  filter();
})();
