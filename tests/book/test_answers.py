"""What the browser says of an answer is what Python says: of right ones, of every known mistake, of any other."""

import re
from functools import cache

import pytest
import sympy

from book._tools import answers
from book._tools.places import BOOK
from companion.study.exercises import check, exercises
from tests.book.test_accessibility import Judge
from tests.book.test_html import parsed
from tests.cases import together

pytestmark = pytest.mark.browser

TABLES = {name: table for name, exercise in exercises().items() if (table := answers.table(exercise))}
NUMBERS = [name for name, table in TABLES.items() if not table["names"]]
FORMULAS = {  # as readers write them; each is right
    "apa-derivation-1": (
        "log(1 + lam*exp(-kappa*z))/lam**2 - exp(-kappa*z)/(lam*(1 + lam*exp(-kappa*z)))",
        "ln(1 + λ·e^(−κ·z))/λ² − 1/(λ·(λ + e^(κ·z)))",
        "torch.log(1 + lambda*torch.exp(-kappa*z))/lambda**2 - torch.exp(-kappa*z)/(lambda*(1 + lambda*exp(-kappa*z)))",
    ),
    "layeract-derivation-2": ("1/t", "t^-1", "(t)/(t*t)"),
    "layeract-noise-2": ("2*t", "t*2", "(1 + t)^2 - 1 - t^2"),
    "dac-conversion-2": ("5*w*b", "b*w*5", "w*b*(9 - 4)"),
    "dac-derivation-2": ("p + q - r", "-(r - q) + p", "−r+p+q"),
    "dnrt-derivation-2": ("sigma*sqrt(2/pi)", "√(2/π)·σ", "2*sigma/sqrt(2*pi)", "0.7978846*sigma"),
    "dnrt-derivation-3": ("2*sigma/sqrt(pi*(2 - m))", "sqrt(2/pi)*sqrt(sigma**2 + sigma**2*m/(2 - m))"),
    "multi-argument-derivation-2": ("abs(t) - 1", "t^2/2 - 1", "-cos(pi*t/2)", "Abs(t) - 1"),
    "kernels-2": ("max(1/stride, 1/8)", "1/min(stride, 8)", "1/Min(8, stride)"),
}


@pytest.fixture
def lines(chromium):
    """A page with a line to answer in for every exercise, and nothing else."""
    page = chromium.new_page()
    places = "".join(f"<section id='{name}'>{answers.place(table)}</section>" for name, table in TABLES.items())
    script = (BOOK / "_static" / "answers.js").read_text(encoding="utf-8")
    page.set_content(f"<!doctype html><html lang=en><title>T</title>{places}<script>{script}</script></html>")
    yield page
    page.close()


def said(lines, name, text):
    """Of what a reader types, before Enter."""
    line = lines.locator(f"#{name}")
    line.locator("input").fill(text)
    line.locator("input").press("Enter")
    return line.locator("output").inner_text()


def said_of_all(lines, name, texts):
    """Of many answers, without the keyboard."""
    return lines.evaluate(
        """([name, texts]) => {
          const [form] = document.getElementById(name).getElementsByTagName("form");
          return texts.map(text => {
            form.elements.answer.value = text;
            form.requestSubmit();
            return form.querySelector("output").value;
          });
        }""",
        [name, texts],
    )


def through(table, values):
    """A formula with these values at the points: Lagrange's polynomial in a sum of the variables."""
    weights = (1.0, 0.37, 0.61)
    sums = [sum(weight * each for weight, each in zip(weights, point, strict=False)) for point in table["points"]]
    along = " + ".join(f"{weight}*{name}" for weight, name in zip(weights, table["names"], strict=False))
    terms = []
    for at, value in enumerate(values):
        others = [each for index, each in enumerate(sums) if index != at]
        terms.append("*".join([f"({value!r})", *(f"({along} - ({s!r}))/({sums[at] - s!r})" for s in others)]))
    return " + ".join(terms)


def by_python(name, text):
    """What `check` says of what the browser was given."""
    names = {each: sympy.Symbol(each) for each in TABLES[name]["names"]}
    expression = sympy.sympify(text, locals=names)
    return check(name, expression if names else float(expression)).text


def test_every_formula_has_right_answers_here():
    assert set(FORMULAS) == set(TABLES) - set(NUMBERS)


@together("name, text", [(name, text) for name, texts in FORMULAS.items() for text in texts])
def test_a_right_formula_is_right_as_readers_write_it(lines, name, text):
    assert said(lines, name, text) == "Right."


@together("name", TABLES)
def test_what_the_table_holds_is_said_as_python_says_it(lines, name):
    table = TABLES[name]
    mistakes = exercises()[name].mistakes
    assert {words for words, _ in table["answers"]} > set(mistakes)
    texts = [repr(values[0]) if name in NUMBERS else through(table, values) for _, values in table["answers"]]
    assert said_of_all(lines, name, texts) == [words for words, _ in table["answers"]]
    for (words, _), text in zip(table["answers"], texts, strict=True):
        # such a formula has the mistake's values at the points; where they are exchanged Python tries others
        assert words.startswith("Two arguments have changed places") or by_python(name, text) == words


@together("name", NUMBERS)
def test_a_number_that_nobody_expects_is_said_to_be_off_as_python_says_it(lines, name):
    (right,) = TABLES[name]["answers"][0][1]
    others = (-right, 2 * right, 1.003 * right, 7.3 * right, -1e9, 1e9, right + 0.23)
    texts = [repr(other) for other in others]
    assert said_of_all(lines, name, texts) == [by_python(name, text) for text in texts]


@together("name", FORMULAS)
def test_a_formula_that_nobody_expects_is_said_to_be_off_as_python_says_it(lines, name):
    table = TABLES[name]
    right = table["answers"][0][1]
    others = [
        [1.003 * right[0], *(0.996 * each for each in right[1:])],
        [-each for each in right],
        [0.93 * each for each in right],
        [each + 0.31 for each in right],
        [right[0], *(each + 0.31 * at for at, each in enumerate(right[1:], 1))],
        [1.002 * right[0] + 0.001, *(each + 0.31 * at for at, each in enumerate(right[1:], 1))],
        [0.4 * at - 3 * each for at, each in enumerate(right, 1)],
    ]
    texts = [through(table, values) for values in others]
    assert said_of_all(lines, name, texts) == [by_python(name, text) for text in texts]


@together(
    "name, text, words",
    [
        ("dac-1", "", "No answer yet."),
        ("dac-1", "  ", "No answer yet."),
        ("dac-1", "minus two", "The formula has the symbol minus; it may have none."),
        ("dac-1", "1,5", "A comma cannot stand here: decimals have a point, as in 0.5."),
        ("dac-1", "2 -", "Something is missing at the end."),
        ("dac-1", "(2 - 3.5", "A bracket is not closed."),
        ("dac-1", "2 - 3.5)", "A bracket is closed that was not opened."),
        ("dac-1", "2 ? 3", "? cannot be read where it stands."),
        ("dac-1", "0/0", "It is NaN."),
        ("dac-1", "alert(1)", "The function alert is not known here; known are"),
        ("dac-1", "constructor", "The formula has the symbol constructor; it may have none."),
        ("dac-1", "<b>2</b>", "< cannot be read where it stands."),
        ("dnrt-derivation-2", "2 sigma", "An operation is missing before sigma; a product has a *."),
        ("dnrt-derivation-2", "x", "The formula has the symbol x; it may have sigma."),
        ("dnrt-derivation-2", "sqrt 2", "A bracket is missing behind sqrt."),
        ("dnrt-derivation-2", "sqrt(2, 3)", "sqrt takes one number."),
    ],
)
def test_what_cannot_be_read_is_told(lines, name, text, words):
    assert said(lines, name, text).startswith(words)


@together(
    "text, value",
    [
        ("47,000 - 900", None),
        ("46,080", 46080),
        ("46080.0", 46080),
        ("2^10*45", 46080),
        ("2**3**2*90", 46080),
        ("-4608*-10", 46080),
        ("4.608e4", 46080),
        ("(48*96)(9 + 1)", None),
        ("48 × 96 · (9 + 1)", 46080),
    ],
)
def test_numbers_are_read_as_the_book_prints_them(lines, text, value):
    assert (said(lines, "dac-kernel-1", text) == "Right.") is (value is not None)


@together("name", TABLES)
def test_no_answer_stands_in_the_page_in_clear_text(name):
    place = answers.place(TABLES[name])
    assert re.fullmatch(r'<div class="neuron-answer" data-answers="[A-Za-z0-9+/=]+"></div>', place)


# --- on the rendered pages -------------------------------------------------------------------------------------------

CHAPTER, PHONE = "mechanisms/apa-derivation.html", {"width": 390, "height": 844}


def test_every_exercise_can_be_answered_or_says_how_to_run_it(site):
    boxes = cache(lambda page: parsed(page).select(".exercise"))
    for name in exercises():
        (page,) = site.glob(f"*/{name.rpartition('-')[0]}.html")
        number = name.rpartition("-")[2]
        (box,) = (each for each in boxes(page) if each.p.get_text(strip=True).startswith(f"Exercise {number} "))
        places, colab = box.select(".neuron-answer"), box.select(".neuron-run a[href*='/blob/colab/book/']")
        assert (len(places), len(colab)) == ((1, 0) if name in TABLES else (0, 1)), name
        if places:
            assert str(places[0]) == answers.place(TABLES[name]), name


def test_on_the_first_page_the_keyboard_is_enough(reader):
    page = reader(**PHONE).open("preface.html")
    for text, words in (("-4.5", "It is three times as large as it should be."), ("2 - 3.5", "Right.")):
        page.locator(".neuron-answer input").fill("")
        page.keyboard.type(text)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Check"
        page.keyboard.press("Enter")
        assert page.locator(".neuron-answer output").inner_text().endswith(words)
    page.locator(".neuron-answer input").press_sequentially("0")
    assert page.locator(".neuron-answer output").inner_text() == ""  # an old verdict is not one about another answer


def test_what_is_said_is_announced_and_stands_out_by_day_and_by_night(reader):
    visit = reader(**PHONE)
    page = visit.open(CHAPTER)
    for line, text in zip(page.locator(".neuron-answer").all(), ("z", "-1.2785"), strict=True):
        line.locator("input").fill(text)
        line.locator("input").press("Enter")
        line.locator("summary").click()
    said = page.get_by_role("status").all_inner_texts()
    assert [each.endswith("Right.") for each in said] == [False, True]
    for box in page.locator(".neuron-run summary").all():
        box.click()
    assert visit.foreign == []
    assert visit.complaints == []
    page.locator("#pst-back-to-top").evaluate("each => each.remove()")  # the theme's: its own colours are faint
    judge = Judge(page)
    assert judge.grave() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    visit.darken()
    assert judge.grave(runOnly=["color-contrast"]) == []


def test_without_javascript_nothing_shows_where_one_would_answer(chromium, address):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/{CHAPTER}")
    heights = page.locator(".neuron-answer").evaluate_all("all => all.map(each => each.offsetHeight)")
    assert heights == [0, 0]
    assert page.locator(".neuron-run summary").is_visible()
    context.close()
