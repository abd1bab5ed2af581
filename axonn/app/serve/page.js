'use strict';

const at = (id) => document.getElementById(id);
const messages = [];  // of the conversation so far
let running = null;   // aborts the request under way

/// The requests' headers, with the server's token if the user gave one.
function headers() {
  const all = {'Content-Type': 'application/json'};
  if (at('key').value) all.Authorization = `Bearer ${at('key').value}`;
  return all;
}

function addTurn(kind, text) {
  const turn = document.createElement('div');
  turn.className = `turn ${kind}`;
  turn.textContent = text;
  at('log').append(turn);
  turn.scrollIntoView({block: 'end'});
  return turn;
}

/// A place for the model's thought, above its turn.
function addThought(turn) {
  const thought = document.createElement('div');
  thought.className = 'turn soft';
  turn.before(thought);
  return thought;
}

/// Calls take with each JSON object of a stream of server-sent events.
async function readEvents(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    held += value;
    const events = held.split('\n\n');
    held = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, '');
      if (data !== '[DONE]') take(JSON.parse(data));
    }
  }
}

/// Sends the request and shows the answer as it comes. Returns its text.
async function answer(path, request, turn) {
  running = new AbortController();
  const response = await fetch(path, {
    method: 'POST', headers: headers(), signal: running.signal,
    body: JSON.stringify({...request, stream: true}),
  });
  if (!response.ok) throw new Error((await response.json()).error.message);
  let text = '', thought = null;
  await readEvents(response.body, (event) => {
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices[0];
    if (!choice) return;
    if (choice.delta && choice.delta.reasoning_content) {
      thought = thought || addThought(turn);
      thought.textContent += choice.delta.reasoning_content;
    }
    text += choice.delta ? choice.delta.content || '' : choice.text;
    turn.textContent = text;
    turn.scrollIntoView({block: 'end'});
  });
  return text;
}

async function send(event) {
  event.preventDefault();
  const said = at('input').value;
  if (!said || running) return;
  const chats = at('mode').value === 'chat';
  at('input').value = '';
  at('stop').hidden = false;
  addTurn('user', said);
  const turn = addTurn('model', '');
  const wanted = {
    model: at('model').value || undefined,
    max_tokens: Number(at('tokens').value), temperature: Number(at('temperature').value),
  };
  try {
    if (chats) {
      messages.push({role: 'user', content: said});
      const text = await answer('/v1/chat/completions', {...wanted, messages}, turn);
      messages.push({role: 'assistant', content: text});
    } else {
      await answer('/v1/completions', {...wanted, prompt: said}, turn);
    }
  } catch (error) {
    if (error.name === 'AbortError') {
      if (chats) messages.push({role: 'assistant', content: turn.textContent});
    } else {
      if (chats) messages.pop();
      addTurn('fault', error.message);
    }
  }
  running = null;
  at('stop').hidden = true;
}

/// Shows the chosen model, which may be adapters of the first.
function showChosen(model) {
  at('name').textContent = model.id;
  at('about').textContent = `context of ${model.max_model_len.toLocaleString('en')} tokens`;
  at('mode').options[0].disabled = !model.chat;
  if (!model.chat) at('mode').value = 'text';
}

async function showModels() {
  const response = await fetch('/v1/models', {headers: headers()});
  at('keys').hidden = response.status !== 401 && !at('key').value;
  if (!response.ok) return;
  const models = (await response.json()).data;
  at('model').replaceChildren(...models.map((model) => new Option(model.id)));
  at('models').hidden = models.length === 1;
  at('model').onchange = () => showChosen(models[at('model').selectedIndex]);
  showChosen(models[0]);
}

at('form').addEventListener('submit', send);
at('input').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) send(event);
});
at('stop').addEventListener('click', () => running && running.abort());
at('clear').addEventListener('click', () => {
  messages.length = 0;
  at('log').replaceChildren();
});
at('key').addEventListener('change', showModels);
showModels();
