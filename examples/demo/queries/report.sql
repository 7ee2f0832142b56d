-- The table report: how warm kettle and tank were. Whoever subscribes to brewery/report hears it.
select topic, count(*) as readings, round(avg(celsius), 1) as mean, max(celsius) as warmest
from temps
group by topic
