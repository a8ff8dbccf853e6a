"""Phrases that settle something, and those with the same words that do not."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from service.extraction.phrases import Phrases

DECISIONS: Final[Phrases] = MappingProxyType(
    {
        "en": (
            (
                r"\b(?:we|they|i)(?:'ve| have)? (?:just |all |both |now |finally )?(?:decided|agreed|chose|chosen"
                r"|picked|settled on|concluded|opted|resolved|went with)\b"
            ),
            r"\bdecision:|\bagreed[.!]|\bit(?: i|')s (?:agreed|decided|settled)\b",
            (
                r"\b(?:board|committee|council|team|group|meeting|panel|parliament|management|staff|members|crew|class"
                r"|jury|court|cabinet|department|union|family|partners|parents|owners|directors|trustees|assembly"
                r"|both sides|everybody|everyone) (?:has |have |had )?(?:all |unanimously |finally )?(?:decided|agreed"
                r"|resolved|chose|chosen|voted|opted|settled)\b"
            ),
            (
                r"\b(?:was|been|were|it is|it's) (?:unanimously |finally |also )?(?:decided|agreed|resolved) (?:to|on"
                r"|that)\b"
            ),
            r"^\W*(?:decided|agreed|resolved) (?:to|on|that)\b|\b(?:decision|plan) is (?:to|that|on)\b",
            r"\b(?:i|we)(?:'re| are|'m| am) going (?:to go )?with\b",
        ),
        "de": (
            (
                r"\b(?:na gut|gut|passt|alles klar|okay|ok|also|dann),? (?:dann )?(?:nehmen|machen|bestellen|bleiben"
                r"|gehen) wir\b"
            ),
            r"\b(?:wird|wurde|ist) (?:hiermit |einstimmig |damit )*(?:beschlossen|angenommen|entschieden)\b",
            r"\babgemacht\b|\bsteht (?:jetzt |damit )?fest\b(?! wann| ob| wie)",
            r"\b(?:wir|ich) haben? (?:uns )?.{0,60}\b(?:entschieden|beschlossen|geeinigt|vereinbart|verständigt)\b",
            r"\b(?:wurde|ist|sind|wurden)\b.{0,60}\b(?:entschieden|beschlossen|vereinbart)\b",
            r"\b(?:entschieden|beschlossen|vereinbart) (?:wurde|haben wir)\b|\bes bleibt dabei\b",
            r"\b(?:beschluss|entscheidung):",
            r"\b(?:dann|also|gut|ok|okay),? (?:nehmen|machen|bleiben|nutzen|gehen) wir\b",
            r"\b(?:hat|haben)\b.{2,60}\b(?:beschlossen|vereinbart)\b|^resolved:",
            (
                r"\b(?:vorstand|ausschuss|rat|team|gremium|versammlung|kollegium|leitung|gruppe|konferenz|runde) (?:hat"
                r"|beschließt|beschloss|einigt|einigte)\b"
            ),
            r"\b(?:wir|ich) (?:nehmen?|bleiben? bei|entscheiden? (?:uns|mich)|einigen uns|beschließen)\b",
        ),
        "fr": (
            (
                r"^\W*(?:(?:le|la|les|notre|nos) |l')(?:[\w'-]+ ){1,4}(?:a|ont) (?:\w+ )?"
                r"(?:décidé|convenu|acté|voté|tranché)\b"
            ),
            r"\bc'est (?:acté|validé|décidé)\b",
            (
                r"\b(?:conseil|comité|équipe|bureau|direction|assemblée|commission|groupe|jury|conseil d'\w+"
                r"|réunion)\b.{0,20}\b(?:a|ont) (?:décidé|convenu|voté|choisi|adopté|résolu)\b"
            ),
            r"\bil (?:a été|est|fut) (?:décidé|convenu|résolu|entendu)\b",
            r"\b(?:allez|bon|ok),? (?:on|va) (?:prend|garde|part|pour)\b|\bva pour\b",
            r"\bon (?:prend|garde) (?:le|la|les|l')",
            (
                r"\b(?:nous avons|on a|j'ai) (?:donc |finalement |tous |bien )?(?:décidé|convenu|opté|choisi|retenu"
                r"|tranché)\b"
            ),
            r"\b(?:nous (?:nous )?sommes|on s'est) (?:tous )?(?:mis d'accord|décidés|entendus)\b|\bdécision ?:",
            r"\b(?:il est|c'est|il a été|a été) (?:décidé|convenu)\b",
            r"\b(?:nous optons|on opte|nous partons|on part) (?:pour|sur)\b",
        ),
        "es": (
            (
                r"\b(?:junta|comité|equipo|consejo|claustro|dirección|asamblea|comisión|grupo|jurado|reunión"
                r"|pleno)\b.{0,20}\b(?:(?:ha )?(?:decidi|acord|resol|vot|aprob)\w*(?:ó|do))\b"
            ),
            r"\bse (?:resolvió|ha resuelto|aprobó|ha aprobado)\b",
            r"\b(?:vale|pues|venga),? (?:nos quedamos|usamos|cogemos|tomamos|vamos con)\b",
            r"\b(?:hemos|he) (?:decidido|acordado|optado|elegido|quedado)\b|\bdecisión:",
            r"\b(?:decidimos|acordamos|optamos por|elegimos|quedamos en|nos quedamos con)\b",
            r"\b(?:se (?:decidió|acordó|ha decidido|ha acordado)|queda (?:decidido|acordado))\b",
        ),
        "ru": (r"\b(?:решили|договорились)\b",),
        "zh": (
            r"就.{1,12}吧\W*$|结论|定下|说定|谈妥|商量好",
            r"选(?:择|定|用|中)?了|定了|定下来|确定(?:用|采用|选|为)|改用|(?:获得|投票|一致|会议)通过|议定",
            r"(?:好|行|那)\W?\w{0,3}就(?:订|去|走|要|这样|它|这么)",
            r"决定|商定|决议|同意|一致通过|达成一致|拍板|敲定|说好了",
            r"(?:最终|最后|我们|大家|还是)(?:都)?(?:选(?:择|定|用)?了?|采用了?)",
            r"(?:我们|那|那么|行|好)\W?\w{0,3}就(?:用|选|采用|定|按|这么)",
        ),
        "ja": (
            (
                r"(?:じゃあ|では|それなら|よし|じゃ).{0,20}(?:にし(?:よう|ます|ましょう|ようか)|で(?:いこう|いきます"
                r"|行こう|お願い|決まり))"
            ),
            r"承認され|可決され|満場一致",
            r"ことに(?:しました|した|します|しよう|しましょう|なりました|なった|決)",
            r"(?<!未)決定(?!的|権|要|木|論|版|書)|に決め(?:た|ました|ます)|にし(?:ました|よう|ましょう)(?:。|ね|$)",
            r"(?:で|と)(?:いこう|行こう|決まり)|可決|決議|[案版社]にした|に決まり(?:ました|ます)|に決まった",
            r"同意(?!書|な|を求)|合意(?:した|しました|に達し)|(?:で|と)いきましょう",
        ),
        "ko": (r"하기로 했",),
    }
)
"""Phrases that settle something."""

UNDECIDED: Final[Phrases] = MappingProxyType(
    {
        "en": (
            (
                r"\b(?:not|never|nobody|no one|none of us|neither|yet to|without)\b(?! only\b)[^.,;:]{0,40}\b(?:decided"
                r"|agreed|chose|chosen|settled|concluded|opted|confirmed|approved|signed off)\b"
            ),
            r"n't\b[^.,;:]{0,30}\b(?:decided|agreed|chosen|settled|concluded|opted|confirmed|approved|signed off)\b",
            (
                r"\b(?:before|until|unless|in case) (?:we|they|i)(?:'ve| have)? (?:all )?(?:decided|agreed|chose"
                r"|settled|confirm)\b"
            ),
            r"\b(?:if|had) (?:we|they|i) (?:had )?(?:decided|agreed|chosen|chose|settled|gone)\b",
            r"\bagreed (?:to )?in writing\b|\b(?:unless|except as|if|as) (?:otherwise )?agreed\b",
        ),
        "de": (
            (
                r"\b(?:nicht|nichts|nie|niemals|niemand|kein\w*|weder|ob)\b(?! nur| mehr als)[^.,;:]{0,40}\b"
                r"(?:entschieden|beschlossen|geeinigt|vereinbart|verständigt)\b"
            ),
            r"\b(?:bevor|sobald|falls|wenn|hätten|hätte) (?:wir|ich)\b",
        ),
        "fr": (
            r"\bsi (?:nous|on|j'|tu|vous)\b",
            r"\b(?:n'(?:a|ai|avons|est|ont)|ne (?:nous )?sommes|ne s'est) (?:\w+ )?(?:pas|rien|jamais|encore)\b",
            r"\b(?:rien|personne) n'",
        ),
        "es": (
            r"\bsi (?:hubiéramos|hubiera|hubiésemos|lo|nos)\b",
            (
                r"\b(?:no|nunca|nadie|nada|sin haber) (?:lo |la |se |nos |le |ha |hemos |han |he )*(?:decid|acord|optad"
                r"|elegi|quedad)"
            ),
        ),
        "zh": (
            r"(?:[没未]|尚未|还没)(?:有|能|曾|经)?\w{0,12}(?:决定|商定|同意|一致)|不(?:同意|能决定)|同意书|征得",
            r"是否同意|(?:要是|如果|假如|若是|倘若)",
            r"于是\w{0,4}决定|(?:国王|船长|将军|公主|皇帝|侦探)\w{0,4}决定",
            r"决定(?:性|因素|权|论|书)|取决|由\w{1,16}决定|(?:再|才能|怎么|如何|难以|无法|待)决定",
        ),
        "ja": (
            r"もし|ていたら|(?:すると|ると)決め",
            (
                r"(?:決定|同意|合意)(?:は|を|が|に)?(?:まだ)?(?:(?:し|されて|できて|至って|得られて)(?:て)?い?(?:ない"
                r"|ません)|でき(?:ない|ません)|前|待ち)"
            ),
            r"ことにして(?:いる|います|い(?:ない|ません))|ことになっている|決めかね|決められ(?:ない|ません)",
        ),
    }
)
"""Words of a decision in a sentence that reports none."""
