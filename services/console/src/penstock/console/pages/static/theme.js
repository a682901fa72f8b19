// Before the first paint: the theme that was chosen here, else that of the system; and that script runs.
(() => {
  const chosen = localStorage.getItem("theme");
  document.documentElement.dataset.script = "on";
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
