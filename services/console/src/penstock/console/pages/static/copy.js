// Buttons that copy what a field holds; without script the field is read and selected by hand.
(() => {
  "use strict";
  const copy = async (field) => {
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      return true;
    } catch { // no clipboard: not by HTTPS, or the browser forbids it
      return document.execCommand("copy");
    }
  };
  document.querySelectorAll("[data-copy]").forEach((button) => {
    const field = document.getElementById(button.dataset.copy);
    const status = document.getElementById(button.getAttribute("aria-describedby"));
    button.hidden = false;
    button.addEventListener("click", async () => {
      status.textContent = "";
      const isCopied = await copy(field);
      status.textContent = isCopied ? "Copied." : "Not copied: press Ctrl+C.";
      if (isCopied) button.focus();
    });
  });
})();
