"""The chat page in a real browser."""
import json
import os
import shutil
from pathlib import Path

import pytest
from serving import ROOT, STORY, TIMEOUT_SECONDS, wait_until

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = os.environ.get("AMDGPU_EP_TEST_NO_BROWSER", "chromium or chromedriver is not installed")
pytestmark = pytest.mark.skipif(not (BROWSER and DRIVER), reason=MISSING)

GOLDENS = {golden["messages"][0]["content"]: golden["text"] for golden in json.loads((ROOT / "demo/goldens.json").read_text())}
QUESTION = STORY[0]["content"]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1100,800"]
HOSTILE = "<img src=x onerror=\"document.title='broken'\"> **text**\n```html\n<script>document.title='broken'</script>\n```\nand more"


class Page:
    """The page in a browser."""

    def __init__(self, server, folder, is_open=True):
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = BROWSER
        for flag in [*FLAGS, f"--user-data-dir={folder}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
        self.server = server
        self.driver.get(server.url)
        if is_open:
            self.wait_for_model()

    def wait_for_model(self):
        wait_until(lambda: not self.one("#model").get_attribute("disabled"), "the model can be chosen")

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def run(self, script, *values):
        return self.driver.execute_script(script, *values)

    def send(self, text):
        self.one("#input").send_keys(text + "\n")

    def is_idle(self):
        return self.one("#send").is_displayed()

    def ask(self, text):
        self.send(text)
        wait_until(lambda: self.is_idle() and not self.one("#input").get_attribute("value"), "the answer is complete")
        return self.messages()[-1]

    def messages(self):
        return self.run("return [...document.querySelectorAll('article .body')].map((body) => body.textContent)")

    def button(self, article, text):
        return next(button for button in article.find_elements("css selector", "button") if button.text == text)

    def screenshot(self, name):
        """Keeps a picture for people to look at."""
        if folder := os.environ.get("AMDGPU_EP_TEST_SCREENSHOTS"):
            self.driver.save_screenshot(Path(folder) / f"{name}.png")

    def set_media(self, scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def set_phone(self):
        size = {"width": 390, "height": 780, "deviceScaleFactor": 2, "mobile": True}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def brightness(self, selector):
        colour = self.run("return getComputedStyle(document.querySelector(arguments[0])).backgroundColor", selector)
        return sum(int(part) for part in colour.strip("rgb()").split(",")[:3])


@pytest.fixture
def page(server, tmp_path):
    page = Page(server, tmp_path / "browser")
    page.driver.set_script_timeout(TIMEOUT_SECONDS)
    yield page
    problems = [entry for entry in page.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    page.driver.quit()
    assert not problems, problems


def test_a_chat_streams_and_survives_a_reload(page):
    assert page.ask(QUESTION) == GOLDENS[QUESTION]
    assert page.one("#title").text == QUESTION
    assert page.run("const nav = document.querySelector('nav'); return nav.scrollWidth <= nav.clientWidth")
    assert "tokens/s" in page.one("#speed").text and page.one("#context").text.endswith("of 288 tokens")
    page.screenshot("chat")
    page.one("#new").click()
    other = next(text for text in GOLDENS if text != QUESTION)
    page.ask(other)
    page.driver.refresh()
    page.wait_for_model()
    assert page.messages()[0] == other
    titles = [button.text for button in page.all("#list li button:first-child")]
    assert titles == [other, QUESTION]
    page.all("#list li button:first-child")[1].click()
    assert page.messages() == [QUESTION, GOLDENS[QUESTION]]


def test_an_answer_can_be_stopped_and_regenerated(page):
    # Without a limit the answer is there before anyone can press a button.
    slow = {"offline": False, "latency": 0, "downloadThroughput": 3000, "uploadThroughput": -1}
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", slow)
    page.send(QUESTION)
    wait_until(lambda: len(page.messages()) == 2 and page.messages()[1], "the answer begins")
    page.one("#stop").click()
    wait_until(page.is_idle, "the answer is stopped")
    stopped = page.messages()[1]
    assert GOLDENS[QUESTION].startswith(stopped.strip()) and len(stopped) < len(GOLDENS[QUESTION])
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {**slow, "downloadThroughput": -1})
    page.button(page.all("article")[-1], "Regenerate").click()
    wait_until(lambda: page.messages()[-1] == GOLDENS[QUESTION] and page.is_idle(), "the whole answer is there")
    assert len(page.messages()) == 2


def test_a_message_can_be_edited(page):
    page.ask("Hello")
    page.button(page.all("article")[0], "Edit").click()
    assert page.one("#input").get_attribute("value") == "Hello" and page.one("#editing").is_displayed()
    page.one("#input").clear()
    assert page.ask(QUESTION) == GOLDENS[QUESTION]
    assert page.messages() == [QUESTION, GOLDENS[QUESTION]]


def test_text_of_models_stays_text(page):
    chat = {"id": "a", "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": HOSTILE}]}
    page.run("localStorage.setItem('amdgpu-ep.chats', arguments[0])", json.dumps({"all": [chat], "current": "a"}))
    page.driver.refresh()
    page.wait_for_model()
    assert page.all("article img, article script") == []
    assert page.one("article figure code").text == "<script>document.title='broken'</script>"
    assert page.one("figcaption span").text == "html"
    assert page.all("article .prose")[-1].text == "and more"
    assert page.driver.title == "x"
    page.screenshot("code")


def test_reasoning_is_folded_away(page):
    answer = {"role": "assistant", "content": "Yes.", "reasoning": "Is it <b>so</b>?"}
    chat = {"id": "a", "messages": [{"role": "user", "content": "x"}, answer]}
    page.run("localStorage.setItem('amdgpu-ep.chats', arguments[0])", json.dumps({"all": [chat], "current": "a"}))
    page.driver.refresh()
    page.wait_for_model()
    folded = page.all("article details")[1]
    assert folded.is_displayed() and not folded.find_element("css selector", "div").is_displayed()
    folded.find_element("css selector", "summary").click()
    assert folded.find_element("css selector", "div").text == "Is it <b>so</b>?"
    assert not page.all("article details")[0].is_displayed() and page.messages()[-1] == "Yes."
    page.screenshot("reasoning")


def test_broken_storage_does_not_break_the_page(page):
    for stored in ("{", "[]", '{"all": 3}', '{"all": [{"id": "a", "messages": [{"role": "x"}]}], "current": 4}'):
        page.run("localStorage.setItem('amdgpu-ep.chats', arguments[0])", stored)
        page.driver.refresh()
        page.wait_for_model()
        assert page.messages() == []


def test_settings_reach_the_server(page):
    page.one("#settings-open").click()
    page.one("[name=max_tokens]").send_keys("3")
    page.one("[name=temperature]").send_keys("0")
    page.screenshot("settings")
    page.one("dialog button").click()
    answer = page.ask(QUESTION)
    assert GOLDENS[QUESTION].startswith(answer) and len(answer.split()) <= 3
    page.driver.refresh()
    page.wait_for_model()
    assert page.run("return JSON.parse(localStorage.getItem('amdgpu-ep.settings')).max_tokens") == "3"


def test_the_page_fits_a_phone(page):
    page.set_phone()
    page.ask(QUESTION)
    page.screenshot("phone")
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")
    assert not page.one("nav").is_displayed()
    page.one("#menu").click()
    assert page.one("nav").is_displayed() and page.one("#menu").get_attribute("aria-expanded") == "true"
    page.screenshot("phone-menu")
    page.one("#new").click()
    assert not page.one("nav").is_displayed()


def test_colours_follow_the_system_and_the_setting(page):
    page.set_media("light")
    light = page.brightness("body")
    page.set_media("dark")
    page.ask(QUESTION)
    page.screenshot("dark")
    assert page.brightness("body") < 200 < 600 < light
    page.run("localStorage.setItem('amdgpu-ep.settings', JSON.stringify({theme: 'light'}))")
    page.driver.refresh()
    page.wait_for_model()
    assert page.brightness("body") > 600


def test_everything_has_a_name_for_screen_readers(page):
    page.ask("Hello")
    tree = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = ("button", "textbox", "combobox", "link", "log", "navigation")
    nodes = [node for node in tree if node.get("role", {}).get("value") in roles and not node.get("ignored")]
    assert len(nodes) > 8
    assert [node for node in nodes if not node.get("name", {}).get("value")] == []


def test_a_key_is_asked_for_and_kept_for_the_tab(start, tmp_path):
    key = "a-long-key-for-the-page"
    server = start("demo=demo/model", AMDGPU_EP_API_KEYS=key)
    page = Page(server, tmp_path / "browser", is_open=False)
    wait_until(lambda: "API key" in page.one("#problem").text, "the page shows the problem")
    page.one("#settings-open").click()
    page.one("[name=key]").send_keys(key)
    page.one("dialog button").click()
    page.wait_for_model()
    assert page.ask(QUESTION) == GOLDENS[QUESTION]
    assert key not in page.run("return JSON.stringify(localStorage)")
    page.driver.quit()
