"""Phrases of questions: for an action, without a question mark, and those that nobody is to answer."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from service.extraction.phrases import Phrases

REQUESTS: Final[Phrases] = MappingProxyType(
    {
        "de": (
            r"\b(?:würden|würdet|wären|wärst|wärt) (?:du|ihr|sie)\b",
            r"\b(?:schaffst|kriegst|hilfst|schickst|gibst|bringst|machst|holst|übernimmst) du\b",
            (
                r"\b(?:kannst|könntest|würdest|magst|kann|könnte|könnt|könntet|könnten|können) (?:du|ihr|sie"
                r"|jemand)\b(?!.{0,40}\b(?:sagen|erklären|bestätigen|zeigen)\b)"
            ),
        ),
        "fr": (
            (
                r"\b(?:peux-tu|pourrais-tu|pouvez-vous|pourriez-vous|(?:tu|vous) (?:peux|pourrais|pouvez|pourriez)"
                r"|quelqu'un peut)\b(?!.{0,20}\b(?:dire|expliquer|confirmer)\b)"
            ),
        ),
        "es": (
            r"\b(?:puedes|podrías|pueden|puede|podría|podéis|podríais)\b(?!.{0,20}\b(?:decir|explicar|confirmar)\w*)",
        ),
        "zh": (
            r"(?:你|您)(?:能|可以|方便).{1,30}[吗么]",
            r"(?:能|可以|能否|可否|能不能|可不可以|方便|麻烦).{0,30}(?:把|帮|给|发|送|交|带|拿|寄|改|修|订).{0,30}吗",
            (
                r"(?:能|可以|能否|可否|能不能|可不可以|方便)(?!说|告诉|解释|确认)[\w ]{0,30}(?:一下|给我|发|帮|送"
                r"|交)[\w ]{0,12}[吗嘛]"
            ),
            r"[好行]吗\W*$",
        ),
        "ja": (
            r"(?:いただけ|もらえ|くれ)(?:ます|ません|る|ない)|もらって(?:いい|よい)",
            r"(?:もらって|いただいて)も(?:いい|よろしい)|(?:て|で)(?:もらえ|いただけ|くれ)(?:ます|ません|る|ない)",
            r"お願いでき",
            r"(?:て|で)(?:もらえ|いただけ|くれ|くださ)(?:ます|ません|ない|る)(?:でしょう)?か?\W*$|お願いできますか",
        ),
    }
)
"""Questions that ask for an action, not for an answer."""

ASKED: Final[Phrases] = MappingProxyType(
    {
        "en": (
            (
                r"^\W*(?:(?:hey|hi|so|and|but|also|ok),? )*(?:do|does|did|is|are|was|were|can|could|will|would|has|have"
                r"|should) (?:we|you|they|he|she|it|anyone|anybody|someone|somebody|there|the|this|that)\b"
            ),
            (
                r"^\W*(?:(?:hey|hi|so|and|but|also|ok),? )*(?:who|what|when|where|which|why|how)(?:'s)? (?:is|are|was"
                r"|were|do|does|did|can|should|will|would|many|much|long|often|\w+s)\b"
            ),
            r"^\W*(?:any ?(?:one|body) (?:know|knows|seen|got)|any (?:idea|news|update)|anyone)\b|\bopen question\b",
        ),
        "de": (
            (
                r"^\W*(?:(?:hey|hi|und|aber|ok|na),? )*(?:weiß|wisst|weißt|hat|habt|hast|ist|sind|kann|kannst|können"
                r"|soll|sollen|gibt|wird|kommt|macht) (?:jemand|wir|ihr|du|man|es|das|der|die|wer|irgendwer|eigentlich"
                r"|noch)\b"
            ),
            (
                r"^\W*(?:(?:hey|hi|und|aber|ok),? )*(?:wer|wann|wo|warum|wieso|wie|welche\w*|wohin|woher) (?!auch\b"
                r"|gesagt\b|immer\b)\w+"
            ),
        ),
        "fr": (
            (
                r"^\W*(?:(?:salut|et|mais|ok),? )*(?:quelqu'un (?:sait|a|peut|connaît)|est-ce que|qui (?:est|a|fait"
                r"|sait)|quand|où|comment|combien|pourquoi|quelle?s? |on sait|tu sais|vous savez|c'est quand|c'est qui"
                r"|y a(?:-t-il)?)\b"
            ),
        ),
        "es": (
            (
                r"^\W*(?:(?:hola|oye|y|pero|ok),? )*(?:alguien (?:sabe|tiene|ha)|sabes|sabéis|sabemos|se sabe|quién"
                r"|cuándo|dónde|cómo|cuánt[oa]s?|cuál|qué|por qué)\b"
            ),
        ),
        "zh": (
            r"未定|待定",
            r"[吗呢](?:[。]|$)|有(?:人|谁)(?:知道|晓得|清楚)|谁(?:知道|有|来|能|去)",
            r"^.{0,12}(?:什么时候|为什么|怎么|哪(?:个|里|天|位|台)|几点|多少).{0,20}$|待确认|未决",
        ),
        "ja": (
            r"(?:知って|わかる|分かる)(?:人|方|る|い).{0,6}$|っけ\W*$|何時(?:から|まで)?$|いつ.{1,20}(?:だ|の)$",
            r"(?:ます|です|でしょう|ません|の|ない|要|必要)か(?:な|ね)?[。]?$|誰か.{0,30}(?:知って|わかる|分かる)",
            r"かな[。]?$|っけ[。]?$|未解決|未定|要確認",
        ),
    }
)
"""Questions of a chat that end in no mark."""

CHITCHAT: Final[Phrases] = MappingProxyType(
    {
        "en": (
            r"\b(?:everything|all) (?:ok|okay|alright|good|well)\b(?=\W*$)|\b(?:good|nice) weekend\b",
            r"\bsle(?:ep|pt) well\b|\blong time no see\b",
            r"\bhow hard can it\b|\bsince when\b|\bhow should i know\b|\bwhat did you expect\b",
            r"\bwhat was i thinking\b|\bwhat's not to\b",
            r"\bwhere (?:did|does|has) (?:the|all the) time\b",
            r"\bwhy (?:do i even|does (?:this|it) always|is it always)\b|\bdo i look like\b",
            r"\bhow(?:'s| is| are) (?:you|it going|things|everyone|everybody|life)\b|\bhow do you do\b",
            r"\bwhat's (?:up|new)\b|\bwho (?:knows|cares)\b|\bwhat(?:'s| is) the point\b",
            r"\bwhat could (?:possibly )?go wrong\b|\bwho (?:doesn't|does not|wouldn't|needs)\b",
            r"\bwho would have (?:thought|guessed)\b|\bcan you believe\b",
            r"\bisn't (?:it|that) (?:great|lovely|funny|wonderful|typical)\b|\bwhy (?:me|bother|not)\b",
            r"\bam i right\b|\bwho am i to\b|\bwhat else is new\b|\bwhat do i know\b|\bwhat can you do\b",
        ),
        "de": (
            r"\bwie läuft(?:'s|s| es)\b|\balles (?:gut|klar|okay|paletti|im lot|in ordnung|fit)\b",
            r"\bgut geschlafen\b|\bwas gibt(?:'s|s) neues\b",
            r"\bwie schwer kann\b|\bwas hast du (?:denn )?erwartet\b|\bwoher soll ich\b|\bsehe ich (?:so )?aus\b",
            r"\bseit wann\b|\bdein ernst\b",
            r"\bwer (?:will|braucht|mag|liebt|kennt|hat|macht|zahlt|liest) (?:das |sowas )?(?:schon|denn|nicht)\b",
            r"\bwarum (?:immer|passiert|ausgerechnet)\b",
            r"\bwie geht(?:'s|s| es)\b|\balles (?:gut|klar|fit)\b(?=.{0,12}\?)|\bwas geht\b",
            r"\bwer (?:weiß|hätte)\b.{0,12}\b(?:schon|das|gedacht)\b|\bwas soll(?:'s|s| das| man)\b",
            r"\bwen (?:interessiert|juckt|kümmert)\b",
            r"\bwer (?:braucht|mag|will|kennt) (?:das|schon|sowas|nicht|denn)\b",
            r"\bgut(?:en|e) (?:morgen|tag|abend|nacht)\b|\bvielen dank\b|\bmit freundlichen grüßen\b",
            r"\bwer hätte das gedacht\b|\bwas will man (?:machen|mehr)\b|\bmuss das sein\b|\bist das nicht\b",
        ),
        "fr": (
            r"\b(?:tout va|tu vas|vous allez) bien\b|\bbien dormi\b|\bla forme\b|\bça (?:roule|gaze)\b",
            r"\bcomment tu te portes\b|\bbon week-end\b",
            r"\bcomment veux-tu que\b|\boù va le monde\b|\bj'ai l'air\b|\btu crois vraiment\b",
            r"\bqui (?:voudrait|ne voudrait|s'en)\b|\bpourquoi (?:moi|toujours|faut-il)\b",
            r"\bqu'est-ce que j'y peux\b|\bque (?:veux-tu|voulez-vous|dire|faire)\b(?=\W*$)",
            r"\bcomment (?:savoir|j'aurais)\b|\bdepuis quand\b",
            r"(?:^|[\s,])ça va\b|\bcomment (?:ça va|vas-tu|allez-vous|tu vas|vas tu)\b|\bquoi de neuf\b|\bqui sait\b",
            r"\bà quoi bon\b|\bqu'est-ce que (?:ça (?:peut|change)|tu veux)\b",
            r"\bqui (?:l'eût|aurait) (?:cru|dit|pensé)\b|\bque veux-tu\b",
            r"\b(?:quelle importance|pourquoi pas|qui s'en soucie|qu'y faire|qu'importe)\b",
            r"\b(?:veuillez agréer|cordialement|bonne journée|bonne nuit)\b|\bqui n'(?:aime|a|en)\b",
        ),
        "es": (
            r"\btodo bien\b|\bcómo te encuentras\b|\bqué (?:pasa|cuentas|hubo)\b(?=\W*$)|\bhas dormido\b",
            r"\bcómo (?:va|anda|lo llevas|os va|les va)\b",
            r"\ba quién se le\b|\bcómo (?:iba|voy|quieres|no iba)\b|\bdónde vamos a parar\b",
            r"\bpor qué (?:siempre|a mí)\b|\bqué esperabas\b|\bacaso\b|\bdesde cuándo\b",
            r"\bquién (?:no|iba|quiere|podría|necesita|me mandaba)\b|\btan difícil\b|\bqué culpa\b",
            r"\bqué tal\b|\bcómo (?:estás|está|están|estáis|va|vas|te va|andas)\b",
            r"\bquién (?:sabe|iba a|lo diría|no)\b|\bqué más da\b|\bqué (?:le vamos|se le va) a hacer\b",
            r"\bqué sé yo\b|\ba quién le importa\b|\bpara qué\b|\bcómo no\b",
            r"\b(?:buenos días|buenas tardes|buenas noches|muchas gracias|atentamente)\b|\bqué hay\b(?=\W*$)",
            r"\bquién lo hubiera\b",
        ),
        "zh": (
            r"忙什么|睡得|周末(?:过|好|愉快)|好久不见|怎么样啊|近来|一切(?:都)?(?:好|顺利)|早[呀啊]",
            r"怎么(?:可能|会|知道)|谁(?:不|会|能|敢|还|让|叫|想).{0,12}呢|哪(?:有|里有|来的)|凭什么|岂|何苦",
            r"有什么好|为什么总|什么时候是个头|能怪谁|不然呢",
            r"最近(?:怎么样|好吗|如何|还好)|你好吗|吃了吗|过得(?:怎么样|好吗|如何)",
            r"谁(?:知道呢|说得准|能想到|想得到|在乎|不(?:想|喜欢|爱))|何必|有什么(?:用|办法)|能怎么办|不是吗|难道",
            r"还好吗|早上好|晚上好|身体(?:好吗|怎么样)",
        ),
        "ja": (
            r"お変わり|最近どう|よく眠れ|週末は(?:どう|いかが)|久しぶり|調子(?:いい|よい|良い)",
            r"(?:誰|だれ)(?:が|に|も).{0,20}(?:ものか|もんか|だろう|でしょう|かよ)\W*$",
            r"(?:なぜ|なんで|どうして)(?:いつも|こう|私)|わけがない|はずがない|いったい|一体|何が悪い|どうしろ",
            r"なんてある",
            r"お元気|元気(?:です|してます|だった|ですか)|元気\W|調子(?:は|どう)|ご機嫌|いかがお過ごし",
            r"(?:誰|だれ)が.{0,12}(?:ものか|もんか|でしょう|だろう|思った)|知るもんか|どうでもいい|おはよう",
            r"こんにちは|こんばんは|お疲れ|しょうがない|何の意味|そんなこと.{0,8}(?:ある|あり)",
        ),
    }
)
"""Greetings and questions that nobody is to answer."""
