"""Hand-written samples that make_token_corpus.py draws from: prose, code, and odd characters."""

PROSE = (
    "The lighthouse keeper's daughter counted forty-two ships before breakfast, then lost "
    "interest.",
    "Please don't touch the red button; it isn't connected to anything, but we'd rather not "
    "find out.",
    "In 1847, about 3,500 people lived here; by 1901 it was 12,048, and nobody could say why.",
    "\"Well,\" she said (quietly), \"that's one way to do it…\" — and closed the door.",
    "Naïve café owners in São Paulo re-serve crème brûlée à la carte.",
    "Der Fleißige zählt die Äpfel, übt Türen öffnen und trägt GROSSE Säcke über die Straße.",
    "Donaudampfschifffahrtsgesellschaftskapitänsmütze, Rindfleischetikettierungsgesetz.",
    "L'été dernier, qu'est-ce qu'on a ri ! Aujourd'hui, c'est l'automne déjà « fini ».",
    "¿Quién leyó el periódico de mañana? ¡Ningún pingüino, señor Nuñez!",
    "A manhã não está tão fria; as crianças já vão à escola às oito.",
    "Perché no? L'orologio della città è fermo dalle 7:45 dell'altro ieri.",
    "Zażółć gęślą jaźń, powiedział Łukasz, i poszedł spać.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy na nábřeží.",
    "Árvíztűrő tükörfúrógép két hét alatt elkészül, ha minden jól megy.",
    "İstanbul'da yağmur yağdı; şöför ışıkları söndürdü mü?",
    "Tiếng Việt có sáu thanh điệu, và chữ viết ghi lại tất cả bằng dấu.",
    "Þegar þú ert á Íslandi er æði margt að sjá, sagði Örn.",
    "Утром в порту было тихо: чайки спали, а ёжик считал лодки.",
    "Ще не вечір, а в її вікні вже горить світло; ґанок порожній.",
    "Δεν ξέρω ποιος άνοιξε το παράθυρο, αλλά ήταν καλή ιδέα.",
    "ἐν ἀρχῇ ἦν ὁ κόγος τῶν ἀνέμων.",
    "匿名的灯塔守早上数了四十二条船，然后去吃早饭了。",
    "今天气温25度，比昨天（3月4日）低了5.5℃。“真的吗？”“当然！”",
    "臺灣的正體字與大陸的简体字寫法不同，但意思相通。",
    "港の灯台は朝早くから仕事をする。カモメはまだ寝ているよ、と彼は言った。",
    "コンピューターの画面に「エラー１２３」と出たので、再起動してみました〜♪",
    "ﾊﾝｶｸｶﾅと全角ＡＢＣを混ぜて書くと読みにくいですね……。",
    "등대지기는 아침마다 배를 세었다. 그런데 오늘은 42척밖에 없다!",
    "한국어 문장은 띄어쓰기가 중요합니다, ㅋㅋㅋ. 값이 없는 것도 값이다.",
    "في صباح يوم هادئ، عد\u0651 الحارس\u064f ٣٥ سفينة\u064b ثم نام.",
    "ب\u0650س\u0652م\u0650 الس\u0651\u064eلام\u0650 و\u064eالم\u064eود\u064e\u0651ة\u0650؛ "
    "ه\u064eل\u0652 أ\u064eن\u0652ت\u064e ب\u0650خ\u064eي\u0652ر\u064d؟",
    "چرا کتاب\u200cها را نمی\u200cخوانید؟ ۱۴۰۳ سال\u0650 خوبی بود.",
    "یہ ایک پرانی کشتی ہے، جس کا نام کسی کو یاد نہیں۔",
    "בוקר טוב, אמר שומר המגדלור; היום עברו 12 ספינות.",
    "ב\u05bc\u05b0ר\u05b5אש\u05c1\u05b4ית צ\u05b8ה\u05b3\u05bcר\u05b7י\u05b4ם — "
    "נ\u05b4ק\u05bcו\u05bcד מ\u05b8ל\u05b5א.",
    "सुबह का समय था; दीपस्तंभ के पास बच्चे खेल रहे थे।",
    "क्षत्रिय और ज़मीन, फ़र्क क्या है? १२३ रुपये।",
    "সকালে নদীর ঘাটে তিনটি নৌকা ছিল, এখন একটিতে আছে।",
    "காலையில் கடல் அமைதியாக இருந்தது; கொக்குகள் வந்தன.",
    "เช้าวันนี้ทะเลสงบ คนเฝ้าประภาคารนับเรือได้ ๔๒ ลำ",
    "ຖາມຫຼັງຈາກຝົນຕົກ, ທະເລສະຫງົບລົງ",
    "မနက်ခင်း၊ ပင်လယ်ပြင် ငြိမ်သက်နေသည်။",
    "დილით ზღვა მშვიდია, თოლიებს სძინავთ.",
    "Առավոտյան ծովը հանգիստ է, իսկ նավերը՝ քնած։",
    "ጠዋት ባሕሩ ፀጥ ያለ ነው። መርከቦች አልመጡም።",
    "ཆཔར་རྒྱ་མཚོ་ཞི་ཞི་འདུག ཤིག།",
    "ᎣᎦᎵ ᎨᏒ ᏗᏓᏴᎳᎬᎢ, ᏅᏍᎩᏉ ᎠᏙᎻ.",
    "Let f: ℝ→ℝ, f(x) = ∫₀ˣ e^(−t²) dt; then ∀ε>0 ∃δ: |x−y|<δ ⇒ |f(x)−f(y)|≤ε. ∎",
    "H₂O + CO₂ ⇌ H₂CO₃; ΔG° = −16.4 kJ·mol⁻¹ at 25 °C (±0.5%).",
    "Total: $1,234.56 / €1.234,56 / ¥1,235 / ₹1,23,456 — 5⁄7 ½ ¾ ⅓ ①②③ Ⅳ ⅻ.",
    "CamelCaseWord, snake_case_word, kebab-case-word, SCREAMING_SNAKE, XMLHttpRequest2Factory, "
    "iOS17.",
    "WHY ARE WE SHOUTING?! I'M NOT; YOU'RE THE ONE WHO'S SHOUTING, AREN'T YOU? THEY'LL HEAR US.",
)

CODE = (
    "def area(points):\n    \"\"\"Signed area of a polygon.\"\"\"\n    total = 0.0\n"
    "    for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1]):\n"
    "        total += x0 * y1 - x1 * y0    # cross product\n    return total / 2\n\n\n"
    "if __name__ == '__main__':\n    print(f\"{area([(0, 0), (1, 0), (1, 1)])!r:>10}\")\n",
    "#include <stdint.h>\n#define ROTL(x, r) (((x) << (r)) | ((x) >> (32 - (r))))\n\n"
    "static uint32_t mix(const uint8_t *p, size_t n)\n{\n\tuint32_t h = 0x9E3779B1u;\n"
    "\tfor (size_t i = 0; i < n; ++i) {\n\t\th ^= p[i];\n\t\th = ROTL(h, 13) * 5u + 0xe6546b64;\n"
    "\t}\n\treturn h == 0 ? ~0u : h;   /* never zero */\n}\n",
    "impl<'a, T: Ord + 'a> Heap<'a, T> {\n    pub fn peek(&self) -> Option<&'a T> {\n"
    "        match self.items.first() { Some(x) if !self.lazy => Some(*x), _ => None }\n    }\n"
    "    #[inline(always)]\n    fn up(&mut self, mut i: usize) { while i > 0 { i = (i - 1) >> 1; "
    "} }\n}\n",
    "export const load = async (url, {retries = 3, ...rest} = {}) => {\n"
    "  for (let i = 0; i <= retries; i++) {\n    try { return await (await fetch(url, "
    "rest)).json(); }\n"
    "    catch (e) { if (i === retries) throw new Error(`failed: ${url}?.${e?.message ?? ''}`); }\n"
    "  }\n};\n// => Promise<any>\n",
    "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() {\n\tch := make(chan int, 8)\n"
    "\tgo func() { defer close(ch); for i := range 10 { ch <- i * i } }()\n"
    "\tfor v := range ch {\n\t\tfmt.Fprintf(os.Stderr, \"%05d\\n\", v)\n\t}\n}\n",
    "#!/bin/sh\nset -eu\nfor f in \"$@\"; do\n  n=$(wc -l < \"$f\") || exit 1\n"
    "  [ \"$n\" -gt 0 ] && printf '%s\\t%d\\n' \"${f##*/}\" \"$n\" >> /tmp/out.$$ 2>&1\ndone\n"
    "awk -F'\\t' '$2 > 9 {s += $2} END {print s+0}' /tmp/out.*\n",
    "SELECT u.name, COUNT(*) AS n, MAX(o.total)::numeric(10,2)\nFROM users u\n"
    "LEFT JOIN orders o ON o.user_id = u.id AND o.placed >= '2021-01-01'\n"
    "WHERE u.name LIKE '%\\_test' OR u.id IN (1, 2, 3)\nGROUP BY 1 HAVING COUNT(*) > 5\n"
    "ORDER BY n DESC NULLS LAST;  -- biggest first\n",
    "<!DOCTYPE html>\n<html lang=\"en\">\n <head><meta charset='utf-8'><title>T &amp; "
    "C</title></head>\n"
    " <body class=\"a b-c\" onload=\"go(1)\">\n  <h1>Hi &#x1F600;!</h1><br/>\n"
    "  <table><tr><td>1</td><td>2</td></tr></table>\n  <!-- nothing <b>here</b> -->\n </body>\n"
    "</html>\n",
    "{\n  \"id\": 17,\n  \"tags\": [\"a\", \"b\\u00e9\", \"\"],\n  \"nested\": {\"x\": -1.5e-07, "
    "\"y\": null, \"z\": true},\n"
    "  \"path\": \"C:\\\\Users\\\\me\\\\file.txt\"\n}\n",
    "services:\n  web:\n    image: \"registry/app:1.2.3\"\n    ports: ['8080:80']\n    "
    "environment:\n"
    "      - KEY=${SECRET:-none}\n      - EMPTY=\n    command: >\n      run --fast\n      --safe\n",
    "\\begin{align}\n  \\nabla \\cdot \\mathbf{E} &= \\frac{\\rho}{\\varepsilon_0} \\\\\n"
    "  e^{i\\pi} + 1 &= 0 \\quad \\text{(Euler)}\n\\end{align}\n% comment $x_1^2$\n",
    "module Tree where\nimport qualified Data.Map as M\n\ndata Tree a = Leaf | Node (Tree a) a "
    "(Tree a)\n"
    "  deriving (Show, Eq)\n\ninsert :: Ord a => a -> Tree a -> Tree a\n"
    "insert x t@(Node l y r)\n  | x < y     = Node (insert x l) y r\n  | otherwise = t\n"
    "insert x Leaf = Node Leaf x Leaf\n",
    "public static <K, V extends Comparable<? super V>> List<K> top(Map<K, V> m, int n) {\n"
    "    return m.entrySet().stream()\n        .sorted(Map.Entry.<K, "
    "V>comparingByValue().reversed())\n"
    "        .limit(n).map(Map.Entry::getKey).toList(); // JDK 16+\n}\n",
    "diff --git a/x.c b/x.c\nindex 83db48f..bf269f4 100644\n--- a/x.c\n+++ b/x.c\n@@ -1,5 +1,6 @@\n"
    "-int x=0;\n+int  x = 0;\n \treturn x;\n",
    "| name | qty | note |\n|:-----|----:|------|\n| nut  |  10 | **bold** `code` |\n\n"
    "1. one\n   * sub\n2. two [link](http://example.org/a_(b))\n\n> quote\n\n---\n```c\nint x;\n"
    "```\n",
    "^(?:[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[a-z0-9]+)*|\"[^\"]*\")@(?:\\[\\d{1,3}\\]|[\\w.-]+\\."
    "\\w{2,})$\n"
    "s/\\(.*\\)\\/\\([^\\/]*\\)$/\\2 in \\1/g\n",
    "        movq    %rdi, -24(%rbp)\n.L3:    vpmaddubsw ymm0, ymm1, [rsi+rax*4]\n"
    "        jne     .L3             ; loop\n0000f0: 7f45 4c46 0201 0100 .ELF....\n",
    "x = [[0]*8 for _ in range(8)]\r\ny = x[::-1][1:-1]\r\nassert x is not y and x != None\r\n",
)

EMOJI = (
    "\U0001f600", "\U0001f602", "\u2764", "\u263a", "\U0001f44d", "\U0001f680", "\U0001f469",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f468\u200d\U0001f4bb",
    "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f1e9\U0001f1ea", "\U0001f1ef\U0001f1f5",
    "1\ufe0f\u20e3", "#\ufe0f\u20e3", "\u2615", "\u2708\ufe0e", "\U0001f385", "\U0001f44b",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "\u00a9", "\u2122",
    "\U0001f9d1\u200d\U0001f91d\u200d\U0001f9d1", "\U0001f937\u200d\u2640\ufe0f", "\U0001f525",
    "\U0001f389", "\u231a", "\u25b6\ufe0f", "\U0001f170", "\U0001f004", "\U0001f642", "\u2b50",
)

SKIN_TONES = ("\U0001f3fb", "\U0001f3fc", "\U0001f3fd", "\U0001f3fe", "\U0001f3ff")

CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'VE", "'M", "'LL",
                "'D", "'Re", "'rE", "'vE", "'Ll", "'lL", "\u2019s", "\u2019t", "\u2019ve", "'sx",
                "'", "''s", "' s", "'\u017f", "'n't", "'ll've", "'r", "'l", "'v", "'em", "'tis",
                "'d've", "'\u0441", "\u02bcs", "`s", "'st", "'dd", "'mm", "'S'S", "'1s")

LINKS = (
    "https://www.example.com/a/b_c-d/index.html", "http://user:pw@10.0.0.1:8080/~me/?a=1&b=2#x",
    "ftp://files.example.org/pub/R%C3%A9sum%C3%A9.tar.gz",
    "mailto:first.last+tag@mail.example.co.uk", "https://example.org/wiki/\u6771\u4eac\u90fd",
    "//cdn.example.net/lib@4.17.21/min.js", "file:///C:/Program%20Files/App/app.exe",
    "www.example.de/stra\u00dfe", "git@example.com:a/b.git",
    "C:\\Windows\\System32\\drivers\\etc\\hosts", "/usr/local/lib/python3.11/site-packages/",
    "./a/../b//c/.hidden", "2001:0db8:85a3::8a2e:0370:7334", "192.168.0.1/24",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUA", "doi:10.1000/182", "tel:+1-201-555-0123",
    "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "@name #tag $AAPL r/C_Programming",
)

ZERO_WIDTH = (
    "\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u200e", "\u200f", "\u202a",
    "\u202e", "\u2066", "\u2069", "\u180e", "\u034f", "\ufe0f", "\ufe0e", "\u061c", "\u115f",
    "\u1160", "\u3164", "\u206a", "\ufff9", "\U000e0001", "\U000e0020",
)

SPACES = ("\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
          "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000",
          "\u0085", "\u180e", "\u000b", "\u000c", "\u001c", "\u001d", "\u001e", "\u001f", " ", " ")

# Each of these once found, or might find, a difference between two tokenizers.
EDGES = (
    "", " ", "  ", "   ", "\n", "\n\n", "\t", "\r", "\r\n", "\r\n\r\n", " \n", "\n ", " \n ",
    "\t\n\t", "a", " a", "a ", " a ", "\na", "a\n", "\n a", "a \n", "a \n\n b", "a  b", "a   b",
    "a\tb", "a\t\tb", "a\u00a0b", " \u00a0a", "\u00a0 a", "\u3000\u3000a", "a\u3000", "\u0085",
    "a\u0085b", " \u0085 ", "\u2028a", "a \u2028", "a\u2029\u2029", "\u180ea", "a \u180e b",
    "\ufeffa", "a\ufeff", "\u200b \u200b", "\0", "a\0b", "\x01\x02\x03", "\x7f",
    "\x1b[31mred\x1b[0m", "a\x1c b", "\x85\x85x", "\x1f\x1f", "'", "''", "'s", "'S", " 's", "'s's",
    "it's", "IT'S", "it\u2019s", "'\u017f", "it'\u017f", "'\u212a", "'tis", "''ll", "'LL", "I'lL",
    "we'D", "don't've", "x'rex", "x'RE!", "'m.", "'ve\n", "1's", "\u4e2d's", "0", "00", "000",
    "0000", "00000", "123456789012345678901234567890", "1 2", "1  2", "1\n2", "1,234",
    "\u0661\u0662\u0663\u0664", "\u0967\u0968", "\uff11\uff12\uff13\uff14",
    "\u00b2\u00b3\u00b9\u2070", "\u00bd\u2153\u215e", "\u2160\u2161\u216b", "\u3007\u4e00\u4e8c",
    "\U0001d7ce\U0001d7cf\U0001d7d8", "\u2460\u2461\u3251", "x\u00b2+y\u00b2", "a1b2c3", "1a", "a1",
    " 1", "  1", " 12345", "\t12", "\u09f4", "\u4e00", "\u9fa5", "\u9fa6", "\u9fa5\u9fa6",
    "\u3005\u3007", "\u3040\u3041", "\u30ff\u3100", "\u3042\u30a2\u4e9c", "\u30a2\u30fc",
    "a\u4e2db", "\u4e2d a", "\u4e2d1", "1\u4e2d", "\u3002\u4e2d", "\u4e2d\u3002", "\uff0c\u4e2d",
    "\uac00\u4e2d", "\u1100\u1161\u11a8", "\u1112\u1161\u11ab", "\uac00\u11a8", "\uac01\u0300",
    "\u1100\uac00", "\u3131\u314f", "e\u0301", "\u00e9", "e\u0323\u0301", "e\u0301\u0323", "\u0344",
    "\u0958", "\u0915\u093c", "\u2126", "\u212b", "A\u030a", "\uf900", "\ufb01", "\ufb1d",
    "\u1e9b\u0323", "\u0f73", "\u0f71\u0f72", "\U0001d15e", "\U0001109a", "\u0308", " \u0308",
    "a \u0308b", "\u0301e", "\u0301\u0301", "\n\u0301a", "q\u0307\u0323", "\u1ea9", "a\u0302\u0309",
    "\u2adc", "\ufb2c", "\u0340\u0341\u0343", "\u037e\u0387", "\u02b0\u02b1", "\u01c5\u01c8",
    "\u00aa\u00ba", "\u2071\u207f", "\u24b6\u24d0", "\u0345", "\u1d43b", "aB", "Ab", "AB", "ABc",
    "aBC", "AbC", "ABCdef", "aBcDeF", "iPhone", "HTMLParser", "\u01c5x", "\u00c9cole", "\u00c9COLE",
    "e\u0301COLE", "\u042f\u043d\u0434\u0435\u043a\u0441", "\u0130i", "\u00df\u1e9e",
    "\u10d0\u1c90", "\u2c00\u2c30", "a\u0645B", "A\u0645b", "\u0645\u0644A", "\u00e9\u00c9e\u0301",
    "!", "!!", " !", " !!", "!a", " !a", "!\n", "!\n\n", "! \n", "!\r\n", "/", "//", "a/", "a/\n",
    "/\n/", ".\n/", "!/\n", " ./", "(a)", "[a]", "{a}", "$a", "#a", "_a", "a_b", "__init__", "-a",
    "--a", "-1", "@a", "\\n", "\\\\", "\\t\t", "a\\", "\\", "~!@#$%^&*()_+`-={}|[]\\:\";'<>?,./",
    "\u00bfa", "\u00aba\u00bb", "\u2026", "\u2014a", "a\u2014b", "\u20ac5", "+1", "\u00d72", "<b>",
    "</b>", "<br>", "a<b>c</b>", "&lt;", "\u2019", "\u201ca\u201d", "\u00a7 1", "\u00b0C",
    "\u00ac\u00ac", "\u02c6\u02dc", "^a", "`a`", "|a|", "\U0001f600", "\U0001f600\U0001f600",
    " \U0001f600", "a\U0001f600b", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea", "\U0001f1e9",
    "\u200d", "\u200d\U0001f600", "\ufe0f", "\u20e3", "1\ufe0f\u20e3", "\U000e0041", "\ue000",
    "\uf8ff a", "\U000f0000", "\U0010ffff", "\ufffd", "\ufffe", "\ufdd0", "\U00020000",
    "\U0002a6d6", "\U00010000", "\U0001f9ff", "\ud7ff", "\U0001d400\U0001d41a", "\u2581",
    "a\u2581b", "\u0120", "\u010a", "\u0120a", "\u00c2\u00a0", "<0x41>", "<0x0A>", "<0xE2>", "<s>",
    "</s>", "<pad", "unk>", "<|", "|>", "[INST]", "<<SYS>>", "im_start", "<im_start>", "endoftext",
    "\u0e01\u0e34\u0e19", "\u0915\u094d\u200d\u0937", "\u0b95\u0bcd", "\u0645\u0640\u0640\u0631",
    "\u200f\u05d0", "\u05d0\u05b8", "\u0e33", "\u0eb3", "\u0f40\u0f71\u0f74", "x'llama", "x'really",
    "x'dog", "x'tea", "x'mad", "x'very", "x'sun", "X'LLAMA", "X'REd", "X'Dog", "A\u02b0b",
    "a\u02b0B", "\u02b0A", "AB\u02b0", "\u01c5a", "a\u01c5", "A\u01c5b", "\u01c5B\u01c5", "\u4e2dA",
    "A\u4e2db", "a\u4e2dB", "AB\u4e2d", "\u0e01\u0e4cA", "A\u0301B", "a\u0301B", "\u0301A",
    "AB\u0301c", "\u02b0\u02b0", "1\u00b23", "\u06631\u00bd", "\u00b2\u2163", "\u2163\u2163 1",
    ".\n/a", "!\n//", "=\n/\n", "\u3042\u4e00", "\u3042a", "\u9fa6\u4e00\u9fa6", "\u00b5m\u00b5",
    "\uff01\uff0f\uff01", "\uff01a\uff01", "a\uff01\uff01", "1\u00a01", "\u00b2\u00b2\u00b2\u00b2",
    "\u00a0\nx", "\u3000\n\nx", "a\u2003\r\nx", " vi\u1ec7c", " h\u1ee3p nhi\u1ec1u", "ektedir",
    "\u0627\u06cc\u0631\u0627\u0646", " Vi\u1ec7t ngo\u00e0i", "a" * 300, "\n" * 70, " " * 300,
    "\u4e2d" * 200, "=" * 120, "ab" * 200, "\t" * 40, "1" * 100, "-" * 79 + "\n", " " * 31 + "x",
    " " * 32 + "x", " " * 33 + "x", "\n" * 31 + "x", "\n" * 33, "\r\n" * 20, " \n" * 20,
    "\u00a0" * 20, "A" * 100 + "b", "e\u0301" * 60, "\U0001f600" * 50,
)
