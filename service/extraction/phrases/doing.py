"""Phrases that ask for an action, and those that state a rule, deny a need, or report one."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from service.extraction.phrases import Phrases

TASKS: Final[Phrases] = MappingProxyType(
    {
        "en": (
            r"\bremind (?:me|us|him|her|them) to\b|\breminder:|\bdon't let (?:me|us) forget\b|\b(?:pls|plz)\b",
            r"\bgotta\b|\b(?:i|we)(?:'ve| have) got to\b",
            r"\b(?:i|we) still (?:have|need) to\b|\bmake sure you\b",
        ),
        "de": (
            r"\b(?:muss|müssen|brauch\w*) noch\b|\bkannste\b|\bbidde\b|\b(?:nicht|nich) vergessen\b",
            (
                r"\b(?:(?:wir|ich) (?:müssen|muss|sollten|sollte|werden?)|(?:muss|müssen) (?:ich|wir)|ich kümmere mich"
                r"|bitte)\b"
            ),
            r"\berinner\w* (?:mich|uns)\b|\bdenk dran\b|\bnicht vergessen\b",
            r"\b(?:du|ihr|sie) (?:musst|müsst|müssen|sollst|sollt|sollten|solltest)\b|\b(?:vergiss|vergesst) nicht\b",
            r"\bdenkt? daran\b",
            (
                r"\b(?:soll|sollen|muss|müssen)\b.{0,80}\bbis (?:zum |zur |spätestens |nächsten |kommenden |ende )*"
                r"(?:(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch|morgen|heute|\d|monatsende|jahresende|der|des)"
            ),
        ),
        "fr": (
            r"\b(?:stp|svp)\b|\b(?:t')?oublie[zs]? pas\b|\bj'ai à\b",
            r"^\W*(?:va )?faut (?:que|qu'|encore)|\brappelle(?:z)?[- ](?:moi|nous)\b|\bje dois\b(?! avoir| être)",
            r"\bil (?:nous |te |vous |me )?(?:faut|faudra|faudrait)\b|\bje (?:vais|m'occupe|me charge)\b",
            r"\bveuillez\b(?! (?:agréer|croire|recevoir|trouver|noter))|\bs'il (?:te|vous) plaît\b",
            r"\bmerci d(?:e\b|')|\bprière de\b|\bn'oublie[zs]? pas\b|\bpense[zs]? à\b",
            r"\b(?:nous (?:devons|allons)|on (?:doit|va)|tu dois|vous devez)\b|\bà faire ?:",
            (
                r"\b(?:doit|doivent|devra|devront|va|vont)\b.{0,80}\b(?:avant|d'ici|pour) (?:le |la |l')?(?:lundi|mardi"
                r"|mercredi|jeudi|vendredi|samedi|dimanche|demain|midi|fin|\d{1,2}(?![\d:]| ?h))"
            ),
        ),
        "es": (
            r"\b(?:xfa|pls)\b|\b(?:hay|tengo|tenemos) q\b|\bno olvides\b|\bencárgate\b",
            r"\b(?:hay que|habrá que|voy a|vamos a|por favor|me encargo de|queda pendiente)\b|\b(?:pendiente|tarea):",
            r"\b(?:tengo|tenemos|tienes|tenéis) que\b|\b(?:debemos|debo)\b(?! de\b| haber| ser| estar)",
            r"\b(?:porfa|porfi)\b|\bno (?:te |se |os |nos )?olvid\w+|\brecuérda(?:me|nos)\b|\brecuerd[ae]\b",
            r"\bque no se (?:te|me|nos) olvide\b|\bacuérdate de\b",
            (
                r"\b(?:debe|tiene que|va a|deberá|tendrá que)\b.{0,80}\b(?:antes del?|para(?: el| la)?) (?:lunes|martes"
                r"|miércoles|jueves|viernes|sábado|domingo|mañana|mediodía|fin|\d)"
            ),
        ),
        "ru": (r"\b(?:нужно|надо|пожалуйста)\b",),
        "zh": (
            (
                r"(?:^|\W|我|还|先|你|咱们?)(?:得|要|该)(?:去|把|给|买|交|找|问|打|写|修|换|订|洗|整理|联系|提交|准备"
                r"|补)"
            ),
            r"我(?:来|这就|马上|稍后|待会|一会|会)(?!说|想|觉得|自|不|了|是|儿)",
            r"(?<![申邀聘宴])请(?!求|假|客|教|愿|柬|示|帖|问)|需要|务必|记得|记着|提醒(?:我|我们|大家|他|她)|还得",
            r"还要去|别忘|不要忘|待办|麻烦(?:你|您|大家|帮)?|帮我|帮忙",
            r"(?:我|我们|你|您|你们|他|她)(?:必须|得|要)(?!是|么|求)|负责.{0,40}(?:前|之前|以前)",
            r"(?:我|我们)会?(?:去|来|在|把|尽快|马上).{0,40}(?:处理|完成|提交|发|联系|安排|准备|修|更新|检查|确认)",
        ),
        "ja": (
            r"なきゃ|よろしく(?:。|$|ね)|頼(?:む|みます)|おねがい|しないといけ",
            r"(?:て|で)ください|[おご]\w{1,8}ください|お願い(?:します|いたします|致します)",
            r"なければ(?:なりません|ならない|いけ)|(?:て|で)おきます",
            r"(?:し|電話し|[きぎしちにびみりえけせてねべめれ])ないと(?:。|$|ね|な)|といて(?:。|$|ね|く)",
            r"(?:を|に)忘れない(?:で|よう)|リマインド|思い出させて|(?:する|の)必要がある|必要があります|忘れずに",
            r"(?:私|僕|こちら)が.{0,40}ます。?$|までに.{0,40}(?:します|出します|送ります|予定)",
        ),
        "ko": (r"해 주세요",),
    }
)
"""Phrases that ask for an action, or promise it."""

RULES: Final[Phrases] = MappingProxyType(
    {
        "en": (
            r"^\W*(?:remember|note|reminder|important)[:,] (?:never|always|nobody|no one|don't|do not)\b",
            (
                r"\b(?:please|kindly),? (?:also |just )?(?:(?:avoid|refrain|only ever)\b|(?:do not|don't) (?!forget"
                r"|hesitate))"
            ),
            (
                r"\b(?:please|kindly|must|should|shall|(?:need|needs|have|has|sure|remember|going) to|will|i'll"
                r"|we'll)\b[^.;:]{0,40}\b(?:never|always|at all times|under no circumstances|on no account)\b(?! mind)"
            ),
            (
                r"^\W*(?:visitors|guests|staff|nurses|pupils|students|members|users|employees|contributors|passengers"
                r"|drivers|children|all|every)\b[^.;]{0,40}\b(?:must|shall)\b"
            ),
            r"^\W*(?:do not|don't) (?:ever\b)|^\W*(?:never|always|under no circumstances|on no account)\b(?! mind)",
            r"\bfrom now on\b|\bas a rule\b|\bmust not\b",
        ),
        "de": (
            r"\b(?:dran|dir|wichtig|achtung|hinweis)[:,] (?:nie|niemals|immer|kein\w*|niemand)\b",
            (
                r"\b(?:bitte|müssen|muss|musst|müsst|soll\w*|dürfen|darf\w*|wird|werden?)\b[^.;:]{0,50}\b(?:nie|niemals"
                r"|(?<!wie )(?<!noch )immer(?! noch)|stets|grundsätzlich|auf keinen fall|keinesfalls|jedes ?mal)\b"
            ),
            r"\bbitte (?:\w+ ){0,3}(?:nicht(?! vergessen| später| nur)|keine?[nmrs]?)\b(?![^.;:]{0,60}\bvergessen\b)",
            r"\bab (?:jetzt|sofort|heute)\b|\bnur noch\b|\b(?:verboten|untersagt|nicht gestattet)\b",
            r"^\W*(?:nie|niemals|immer|stets|grundsätzlich|auf keinen fall)\b(?! noch)|\bvon nun an\b",
        ),
        "fr": (
            r"^\W*(?:mets|mettez|fais|faites|utilise\w*|envoie\w*|écri\w+|parle\w*|touche\w*) (?:jamais|toujours)\b",
            r"\bjamais d(?:e|')",
            r"\bpersonne ne\b|\b(?:rappel|attention|important) ?: (?:ne|jamais|toujours)\b",
            (
                r"\b(?:merci de|veuillez|s'il (?:vous|te) plaît,?|prière de|il faut|il faudra|nous devons|on doit"
                r"|vous devez|tu dois)[^.;:]{0,40}\b(?:toujours|jamais|systématiquement|en aucun cas|à chaque fois"
                r"|évite[rz]?)\b"
            ),
            (
                r"\b(?:merci de|veuillez|s'il (?:vous|te) plaît,?|prière de) ne (?:\w+ )?(?:pas|plus|rien)(?! (?:l'"
                r"|les? |la )?oubli)\b"
            ),
            r"^\W*(?:ne |n')[^.;:]{0,30}\bjamais\b|\bil ne faut\b|^\W*(?:jamais|toujours)\b|\bdésormais\b",
            r"\b(?:à partir|dès) (?:de maintenant|d'aujourd'hui|maintenant)\b|\b(?:interdit|défendu) d",
            r"\bne (?:devons|doit|devez|dois) (?:pas|jamais)\b",
        ),
        "es": (
            r"\bnadie\b|\b(?:recuerda|ojo|importante)[:,] (?:nunca|siempre|no)\b",
            (
                r"\b(?:por favor|hay que|debe\w*|tene\w+ que|tiene\w* que|tengo que|voy a|vamos a|recuerd\w+)\b"
                r"[^.;:]{0,40}\b(?:nunca|jamás|(?<!como )siempre|en ningún caso|bajo ningún concepto|evit\w+)\b"
            ),
            r"\bpor favor,? no (?!(?:te |se |os |me |le )?olvid)|\bno (?:debe\w*|se debe)\b|\bprohibid[oa]s?\b",
            r"\bno se (?:puede|permite)n?\b|\b(?:las?|los|el) \w+ deben?\b|^\W*(?:nunca|jamás|siempre)\b",
            r"\ba partir de ahora\b",
        ),
        "ru": (r"(?:пожалуйста),? (?:не|никогда|всегда) ",),
        "zh": (
            r"请\w{0,12}(?:不要|勿|别|切勿|禁止|避免)(?!忘|漏|迟|错过|客气)|请\w{0,12}(?:始终|总是|永远|一律|每次)",
            r"(?:务必|必须|需要|要|得)(?:始终|总是|永远|一律|每次|不)|(?:永远|绝对|千万|一律)(?:不|别)(?!要?忘)",
            r"^(?:切勿|禁止|不得|严禁|绝不|决不|不要|别)(?!忘|客气)|从现在(?:起|开始)|今后|以后(?:都|请|一律)|每次都",
            r"总是要|(?:前|时|必须|都)必须|前必须|一律",
        ),
        "ja": (
            r"^(?!.*まで).*(?:必ず|常に|いつも|毎回)|^(?!.*まで).*(?:なければならない|ねばならない|こと。?$)|今後",
            r"以降|次回から|次から",
            (
                r"(?:返信|返事|回答|文章|文体|口調|要約|説明|出力)\w{0,6}は.{0,30}(?:で|に)(?:して|お願い|書いて"
                r"|まとめて)"
            ),
            r"(?<!忘れ)(?<!遅れ)ないで(?:ください|下さい)|てはいけ(?:ない|ません)|てはなりません|禁止|禁ず",
            r"必ず\w{0,20}(?:なければ|ねば)|(?:面会者|利用者|生徒|職員|社員|従業員|参加者|来場者|全員)\w{0,2}は",
            r"(?:いつも|常に|毎回|必ず毎|絶対に|決して).{0,40}(?:てください|こと|ように|ない)",
            r"必ず.{0,20}(?:こと|ように)|(?:今後|これから)は",
        ),
    }
)
"""Phrases of a rule, which holds whenever it applies and is no task that is done once."""

UNNEEDED: Final[Phrases] = MappingProxyType(
    {
        "en": (
            (
                r"\b(?:do not|don't|does not|doesn't|did not|didn't|won't|will not|no longer) (?:really |actually )?"
                r"(?:need|have) to\b"
            ),
            r"\bmust (?:have|be)\b",
            r"\b(?:sign|poster|notice|label|mug|slogan|song|novel|film|banner|sticker) (?:says|said|reads|read)\b",
            r"\bno need to\b|\bneeds? not\b|\bneedn't\b|\bnot (?:necessary|required|needed) to\b",
        ),
        "de": (
            r"^(?!.*\bbis\b).*\b(?:muss|müssen|musst|müsst)\b.{0,60}\b(?:sein|haben)\W*$",
            (
                r"\b(?:wir|ich|du|ihr|sie|man|es) (?:müssen|muss|musst|müsst|brauchen?|brauchst|braucht|werden?|wird"
                r"|sollten?)\b[^.,;:]{0,60}\b(?:nicht(?! vergessen| später| nur)|nichts|kein\w*)\b(?!"
                r"[^.,;:]{0,20}\bvergessen\b)"
            ),
            r"\bnicht (?:nötig|notwendig|erforderlich)\b",
            r"\b(?:muss|müssen|musst)\b.{0,60}\b(?:gewesen|gehabt|geworden)\b",
            r"\b(?:muss|müssen)\b.{0,60}\bge\w+(?:t|en) (?:sein|haben)\b",
            r"\b(?:auf|an|in) \w+ (?:\w+ )?(?:steht|stand)\b",
            r"\b(?:schild|plakat|zettel|aufkleber)\b.{0,30}\b(?:steht|stand|sagt)\b",
        ),
        "fr": (
            r"\b(?:pas|plus) (?:besoin|nécessaire|obligé|la peine)\b|\binutile de\b",
            r"\b(?:n'(?:ai|avons|avez|as|est)|ne (?:vais|va|devons|faut)) pas\b|\b(?:a|as|ont|avez) dû\b",
            r"\b(?:doit|doivent|dois|devez) (?:avoir|être)\b",
            (
                r"\b(?:panneau|affiche|pancarte|écriteau|tasse|tee-shirt|chanson|livre|étiquette)\b.{0,30}\b(?:dit"
                r"|disait|indique|indiquait|proclame)\b"
            ),
            r"\b(?:est|était|a) écrit\b",
        ),
        "es": (
            r"\bno (?:hace falta|es necesario|es obligatorio|voy a|vamos a|debemos|debes|deben)\b|\bsin necesidad\b",
            r"\bno (?:hay|tengo|tenemos|tienes|tienen|tiene) (?:por )?que\b|\bno necesit",
            r"\b(?:debe|deben|debes|debió|debieron)(?: de)? (?:haber|ser|estar)\b|\btien\w+ que (?:haber|ser)\b",
            (
                r"\b(?:cartel|letrero|rótulo|pancarta|taza|camiseta|canción|libro|etiqueta|póster)\b.{0,30}\b(?:dice"
                r"|decía|pone|ponía|reza|rezaba)\b"
            ),
        ),
        "zh": (
            r"(?:牌子|标语|海报|告示|杯子|贴纸)上?.{0,8}(?:写着|印着|写|说)|一定是|肯定是|想必",
            r"(?:不|无|毋|没有?)(?:再|是|太)?(?:需要?|须|必要?|用)(?!不)|是否需要|(?:如果?|若|假如)有?需要|需要的话",
            r"需要时",
            r"需要(?:时间|多久|多少|[约大]?[\d一二三四五六七八九十两几]+多?(?:个|天|年|小时|分钟|周|元|块|人|米))",
        ),
        "ja": (
            r"必要(?:は|が|も)?(?:ない|ありません|なく|なさ)|なくても?(?:いい|よい|良い|大丈夫|構い|かまい|結構)",
            r"不要(?:です|だ|に)|(?:看板|標識|ポスター|張り紙|カップ)に.{0,40}(?:書いて|書かれ)|に違いない|はずだ",
        ),
    }
)
"""Phrases that deny a need."""
